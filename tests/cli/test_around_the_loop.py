"""What an update of fairseq-train does outside of the step loop: almost all of it is fairseq's optimizer."""

import traceback
from collections import Counter

import pytest
from fairseq.trainer import Trainer
from torch.utils._python_dispatch import TorchDispatchMode

from tests.cli.fairseq_commands import run
from tests.conftest import REPOSITORY

LAYERS = 6
SIZES = [
    "--decoder-layers",
    LAYERS,
    "--decoder-embed-dim",
    16,
    "--decoder-ffn-embed-dim",
    16,
    "--decoder-attention-heads",
    2,
    "--attention-span",
    8,
    "--dropout",
    0.1,
    "--tokens-per-sample",
    8,
]
LOOPS = "ops/feedback/", "modules/relative_transformer.py"


class CountedOperations(TorchDispatchMode):
    """Counts torch's operations by who asks for them: ``loop``, ``ours``, ``fairseq``; and those that wait."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        files = [frame.filename for frame in traceback.extract_stack()[:-1]]
        files = [name for name in files if "-packages/torch/" not in name and "/tests/" not in name]
        loop = any(part in name for name in files for part in LOOPS)
        who = "loop" if loop else "ours" if files and files[-1].startswith(f"{REPOSITORY}/fb_fairseq") else "fairseq"
        self.counts[who] += 1
        if operation.name() == "aten::_local_scalar_dense" and any(tensor.dim() == 0 for tensor in args):
            self.counts[f"{who} waits"] += 1
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "arch", ["feedback_transformer_lm", pytest.param("relative_transformer_lm", marks=pytest.mark.slow)]
)
def test_operations_of_an_update(arch, byte_data, monkeypatch):
    counts, step = [], Trainer.train_step

    def counted(self, samples, **options):
        with CountedOperations() as mode:
            result = step(self, samples, **options)
        counts.append(mode.counts)
        return result

    monkeypatch.setattr(Trainer, "train_step", counted)
    run(
        "train",
        byte_data,
        "--task",
        "streaming_lm",
        "--arch",
        arch,
        *SIZES,
        "--batch-size",
        4,
        "--max-update",
        4,
        "--criterion",
        "lm_loss",
        "--optimizer",
        "adam",
        "--lr",
        0.001,
        "--bf16",
        "--cpu",
        "--no-save",
        "--disable-validation",
        "--log-interval",
        100,
    )
    last = counts[-1]
    assert last["loop"] > 300 and last["fairseq"] > 1500
    assert last["ours"] <= 60 and last["ours waits"] <= 1  # (which is on a CPU)
