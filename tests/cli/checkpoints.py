"""What checkpoints hold and compute: loaded by hand, and through fairseq-eval-lm and fairseq-interactive."""

import math
import re

import torch

from fb_fairseq.trained_model import LEFT_OUT
from tests.cli.fairseq_commands import options, run


def load(checkpoint, data):
    """Model and task of a checkpoint, as fairseq-eval-lm loads them."""
    from fairseq import checkpoint_utils

    import fb_fairseq.models  # noqa: F401  --user-dir does this
    import fb_fairseq.tasks  # noqa: F401

    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], arg_overrides={"data": str(data)}
    )
    return models[0].eval(), task


def hub(checkpoint, data):
    """fairseq's hub interface of a language model."""
    from fb_fairseq.models.language_model import StreamingLanguageModel

    return StreamingLanguageModel.from_pretrained(str(checkpoint.parent), checkpoint.name, str(data))


def loss_by_hand(checkpoint, data, split, streams):
    """Bits of a whole split cut into streams, by one forward pass for each stream in float64; and its tokens."""
    model, task = load(checkpoint, data)
    model.double()
    task.load_dataset(split)
    corpus = task.dataset(split).corpus
    bits, n = 0.0, len(corpus)
    for b in range(streams):
        tokens = corpus[b * n // streams - 1 : (b + 1) * n // streams]
        logits = model(tokens[None, :-1])[0]
        bits -= logits.log_softmax(-1)[0].gather(1, tokens[1:, None]).sum().item() / math.log(2)
    return bits, n


def eval_lm(data, checkpoint, *arguments, **changes):
    """fairseq-eval-lm's log."""
    values = {"task": "streaming_lm", "path": checkpoint, "cpu": True, "num_workers": 0, **changes}
    return run("eval-lm", data, *options(values), *arguments)


def loss_in(log) -> float:
    """Bits per token, as the log of fairseq-eval-lm says them."""
    return float(re.search(r"Loss \(base 2\): ([\d.]+)", log)[1])


def interactive(data, checkpoint, folder, prompts, *more):
    """The D- lines of fairseq-interactive, best hypothesis of each prompt."""
    (folder / "prompts").write_text("".join(f"{prompt}\n" for prompt in prompts))
    arguments = ["--task", "streaming_lm", "--path", checkpoint, "--cpu", "--input", folder / "prompts"]
    log = run("interactive", data, *arguments, *more)
    return [re.findall(rf"^D-{i}\t[^\t]*\t(.*)$", log, re.M)[0] for i in range(len(prompts))]


def parameters(checkpoint) -> dict:
    """A checkpoint's parameters, loaded as weights only."""
    return torch.load(checkpoint, map_location="cpu", weights_only=True)["model"]


def assert_same_parameters(one, other) -> None:
    """Bit-equal, but for what fairseq leaves uninitialised."""
    one = parameters(one)
    other = parameters(other)
    assert one.keys() == other.keys()
    for name in one:
        if not LEFT_OUT.match(name):
            assert one[name].equal(other[name]), name
