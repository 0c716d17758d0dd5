"""What the golden files hold.

The archives in this folder were written at commit ad3b128, before the package was reorganised. Each is one model:
a checkpoint in mid-epoch with its stream memory, the model's parameters after one more update (``resumed.pt``), and
what the checkpoint computes (``expected.pt``, as ``measure`` returns it): logits, losses, a greedy and a beam
continuation. ``tests/cli/test_golden.py`` checks that today's code still gives the same. The program that wrote the
archives is in this file's history, up to commit 0efbd58a.
"""

import pathlib
import re
import shutil
import tarfile

import torch

from tests.cli.checkpoints import load, loss_in
from tests.cli.fairseq_commands import NO_LAYERS_OF_A_TRANSFORMER, options, run
from tests.cli.fairseq_commands import train as train_lm
from tests.cli.parallel_text import train as train_translation

FILES = pathlib.Path(__file__).parent
UPDATES = 40
SMALL = dict(decoder_embed_dim=8, decoder_ffn_embed_dim=12, no_epoch_checkpoints=True, disable_validation=True, lr=0.02)
# Options of training by case; None leaves out what the tests' commands give otherwise.
LANGUAGE_MODELS = {
    "feedback": dict(adaptive_span=True, adaptive_span_loss=1e-4, adaptive_span_ramp=3, adaptive_span_init=0.4),
    "feedback_per_layer": dict(
        memory_projections="per-layer",
        memory_composition="same-and-lower",
        decoder_normalize_before=None,
        share_decoder_input_output_embed=True,
        activation_fn="gelu",
    ),
    "all_attention": dict(
        arch="all_attention_lm",
        relative_positions="key-value",
        adaptive_span=True,
        adaptive_span_ramp=4,
        adaptive_span_init=0.3,
        decoder_normalize_before=None,
        optimizer="clipped_adagrad",
    ),
    "transformer": dict(
        arch="relative_transformer_lm", relative_positions="none", share_decoder_input_output_embed=True
    ),
    "lstm": dict(NO_LAYERS_OF_A_TRANSFORMER, arch="streaming_lstm_lm"),
}
TRANSLATION = {
    "decoder": dict(
        memory_projections="shared",
        share_decoder_input_output_embed=True,
    ),
    "decoder_per_layer": dict(
        memory_projections="per-layer",
        decoder_normalize_before=True,
        encoder_normalize_before=True,
    ),
}
SMALL_TRANSLATORS = dict(
    encoder_embed_dim=8,
    encoder_ffn_embed_dim=12,
    decoder_ffn_embed_dim=12,
    decoder_embed_dim=8,
    max_tokens=200,
    disable_validation=True,
    lr=0.02,
)
PROMPTS = ["al", r"mo\nte ", "a"]


def train(case: str, data, folder, updates: int) -> str:
    """Train a case up to that many updates, or continue from ``folder``'s checkpoint. Returns the log."""
    changes = dict(max_update=updates, log_interval=1)
    if case in TRANSLATION:
        return train_translation(data, folder, **{**SMALL_TRANSLATORS, **TRANSLATION[case], **changes})
    return train_lm(data, folder, **{**SMALL, **LANGUAGE_MODELS[case], **changes})


def measure(case: str, checkpoint, data, folder) -> dict:
    """What a checkpoint computes: logits, loss, continuations."""
    model, task = load(checkpoint, data)
    if case in TRANSLATION:
        return measure_translation(model, task, checkpoint, data)
    (folder / "prompts").write_text("".join(f"{prompt}\n" for prompt in PROMPTS))

    def continuations(*more):
        given = ["--task", "streaming_lm", "--path", checkpoint, "--cpu", "--input", folder / "prompts"]
        log = run("interactive", data, *given, "--max-len-b", 20, *more)
        return re.findall(r"^D-\d+\t[^\t]*\t(.*)$", log, re.M)

    tokens = torch.tensor([list(range(2, 14)), list(range(70, 82))])
    with torch.no_grad():
        logits, _ = model(tokens)
    given = ["--task", "streaming_lm", "--path", checkpoint, "--cpu", "--gen-subset", "test"]
    log = run("eval-lm", data, *given, "--valid-streams", 3, "--tokens-per-sample", 7)
    texts = {"greedy": continuations("--beam", 1), "beam": continuations("--beam", 3)}
    return {"logits": logits[:, -3:].clone(), "loss": loss_in(log), **texts}


def measure_translation(model, task, checkpoint, data) -> dict:
    """What a translator computes: logits, minus the mean score of its beam search as ``loss``, translations."""
    source = torch.tensor([[5, 6, 7, 2], [9, 8, 2, 1]])
    previous = torch.tensor([[2, 10, 11], [2, 12, 13]])
    with torch.no_grad():
        logits, _ = model(source, torch.tensor([4, 3]), previous)

    def generated(beam):
        values = dict(path=checkpoint, beam=beam, cpu=True, batch_size=7, num_workers=0)
        log = run("generate", data, *options(values))
        found = re.findall(r"^H-(\d+)\t([-\d.einf]+)\t(.*)$", log, re.M)
        found = sorted((int(n), text, float(score)) for n, score, text in found)
        return [text for _, text, _ in found], torch.tensor([score for *_, score in found])

    greedy, _ = generated(1)
    beam, scores = generated(3)
    return {"logits": logits, "greedy": greedy, "beam": beam, "loss": float(-scores.mean())}


def unpack(case: str, folder: pathlib.Path) -> pathlib.Path:
    """Unpack a case's files. Returns their folder."""
    with tarfile.open(FILES / f"{case}.tar.gz") as archive:
        archive.extractall(folder / case)
    return folder / case


def copy_checkpoint(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy a run's last checkpoint and stream memory to the folder ``target``."""
    target.mkdir(parents=True, exist_ok=True)
    for path in [source / "checkpoint_last.pt", *source.glob("stream_memory.*.pt")]:
        shutil.copy(path, target / path.name)
