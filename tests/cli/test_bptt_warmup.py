"""BPTT warm-up in fairseq-train: resumed anywhere, equal to hand-written training."""

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.modules import StreamState
from tests.cli.checkpoints import assert_same_parameters, load, parameters
from tests.cli.conftest import made_up_text
from tests.cli.fairseq_commands import json_logs, train, train_in_two_processes

# 8 streams of 375 or 376 steps: 5 iterations of 8 streams x 2 steps, 5 of 4 x 4, then 2 x 8.
WARMUP = dict(
    batch_size=2,
    tokens_per_sample=8,
    bptt_warmup_tokens=2,
    bptt_warmup_iterations=5,
    disable_validation=True,
    no_epoch_checkpoints=True,
)


class Handle:
    """Stands for the handle of a block: the memories of its streams, in a list of all streams'."""

    def __init__(self, memory, streams, offset):
        self.memory, self.streams, self.offset = memory, streams, offset

    def read(self):
        if self.offset == 0:
            return None
        return StreamState(torch.stack([self.memory[b] for b in self.streams], 2))

    def write(self, state, steps):
        for b, of_stream in zip(self.streams, state.memory_KCBD.unbind(2)):
            self.memory[b] = of_stream


def train_by_hand(model, texts, blocks, lr):
    """Plain SGD. ``texts``: the tokens of each stream, with the one before; ``blocks``: streams and steps of each."""
    memory, done = [None] * len(texts), [0] * len(texts)
    for streams, steps in blocks:
        offset = done[streams[0]]
        tokens = torch.stack([texts[b][offset : offset + steps + 1] for b in streams])
        logits = model(tokens[:, :-1], stream=Handle(memory, streams, offset))[0]
        model.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= lr * parameter.grad
        for b in streams:
            done[b] += steps


@pytest.mark.parametrize("arch", ["feedback_transformer_lm", "relative_transformer_lm"])
def test_equal_to_a_run_cut_by_hand(byte_data, tmp_path, arch):
    """A run's parameters are those of plain SGD on these blocks of these streams in this order."""
    common = dict(arch=arch, **WARMUP, optimizer="sgd", clip_norm=0)
    train(byte_data, tmp_path / "start", **common, lr=1e-30, max_update=1)  # the parameters with which a run starts
    train(byte_data, tmp_path / "run", **common, lr=0.5, max_update=16)
    model, task = load(tmp_path / "start/checkpoint_last.pt", byte_data)
    task.load_dataset("train")
    corpus = task.dataset("train").corpus
    texts = [corpus[b * 3001 // 8 - 1 : (b + 1) * 3001 // 8] for b in range(8)]  # (at -1 is </s>)
    blocks = (
        [(range(8), 2)] * 5
        + [(range(4), 4), (range(4, 8), 4)] * 2
        + [(range(4), 4)]
        + [(range(b, b + 2), 8) for b in (4, 6, 0, 2, 4, 6)]  # those that are behind come first
    )
    train_by_hand(model.train(), texts, blocks, lr=0.5)
    trained = parameters(tmp_path / "run/checkpoint_last.pt")
    for name, value in model.state_dict().items():
        torch.testing.assert_close(trained[name], value, atol=2e-5, rtol=2e-5, msg=name)


RANDOM = dict(**WARMUP, dropout=0.1, decoder_layerdrop=0.2)


@pytest.fixture(scope="module")
def uninterrupted(byte_data, tmp_path_factory):
    """The checkpoint of a run of 20 updates."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    train(byte_data, folder, **RANDOM, max_update=20)
    return folder / "checkpoint_last.pt"


# Inside a stage, at the doublings, and where one half of the streams is ahead of the other (6 to 9 iterations).
@pytest.mark.parametrize("stop", [3, 5, 6, 13])
def test_stopped_and_resumed(byte_data, tmp_path, uninterrupted, stop):
    train(byte_data, tmp_path, **RANDOM, max_update=stop)
    log = train(byte_data, tmp_path, **RANDOM, max_update=20)
    assert "no memory of the streams" not in log
    assert_same_parameters(uninterrupted, tmp_path / "checkpoint_last.pt")


@pytest.mark.on_ci
def test_later_epochs_and_shards_count_the_iterations_before(byte_data, tmp_path):
    """Resumed in the second epoch, within the warm-up, with one shard per epoch and another --update-freq.

    16 updates of 16 streams with 31 or 32 steps, then 8 streams with 375: 24 blocks of 2 steps, 40 of 4, others of 8.
    """
    from fb_fairseq.commands import preprocess_bytes

    preprocess_bytes.binarise(
        {split: [made_up_text(500, 9)] for split in ("train", "valid")}, str(tmp_path / "other"), append_eos=False
    )
    data = f"{tmp_path / 'other'}:{byte_data}"
    run = dict(**{**WARMUP, "bptt_warmup_iterations": 40}, update_freq="2,1")
    log = train(data, tmp_path / "whole", **run, max_update=70)
    first = json_logs(log, "train")[0]
    assert (float(first["train_total_tokens"]), float(first["train_num_updates"])) == (500, 16)
    assert "epoch 2 has 8 streams, 188 iterations: 24 with blocks of 2 steps, 40 with blocks of 4 steps" in log
    for stop in (16, 30, 58):
        train(data, tmp_path / f"cut{stop}", **run, max_update=stop)
        train(data, tmp_path / f"cut{stop}", **run, max_update=70)
        assert_same_parameters(tmp_path / "whole/checkpoint_last.pt", tmp_path / f"cut{stop}/checkpoint_last.pt")


def test_two_processes_equal_update_freq_two(commands, byte_data, tmp_path):
    """Each process keeps the memory of its own streams, over doublings and a stop; with spans that adapt."""
    run = dict(**WARMUP, attention_span=60, adaptive_span=True, adaptive_span_ramp=4, adaptive_span_loss=0.002)
    for stop in (7, 12):
        train_in_two_processes(commands, byte_data, tmp_path / "two", **run, max_update=stop)
        log = train(byte_data, tmp_path / "one", **run, max_update=stop, update_freq=2)
    assert "no memory of the streams" not in log
    assert_same_parameters(tmp_path / "two/checkpoint_last.pt", tmp_path / "one/checkpoint_last.pt")


@pytest.fixture(scope="module")
def stopped(byte_data, tmp_path_factory):
    """The folder of a run that was stopped in its warm-up."""
    folder = tmp_path_factory.mktemp("stopped")
    train(byte_data, folder, **WARMUP, max_update=6)
    return folder


@pytest.mark.parametrize(
    "changes,message",
    [
        (dict(batch_size=800), r"--update-freq x 4 \(--bptt-warmup-tokens\): 3200 streams.*3001 tokens"),
        # What does not continue the warm-up of the run.
        (dict(bptt_warmup_tokens=4), r"x 2 \(--bptt-warmup-tokens\) is 4 streams;.*with 8"),
        (dict(bptt_warmup_tokens=None, bptt_warmup_iterations=None), "--update-freq is 2 streams;.*with 8"),
        (dict(bptt_warmup_iterations=20), "the BPTT warm-up.*no block starts"),
    ],
)
def test_refused(byte_data, stopped, changes, message):
    with pytest.raises(UserError, match=message):
        train(byte_data, stopped, **{**WARMUP, **changes}, max_update=8)
