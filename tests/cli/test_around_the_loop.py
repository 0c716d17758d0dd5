"""Operations of an update of fairseq-train outside of the step loop: almost all are those of fairseq's optimizer."""

import traceback
from collections import Counter

from fairseq.trainer import Trainer
from torch.utils._python_dispatch import TorchDispatchMode

from tests.cli.fairseq_commands import train
from tests.conftest import REPOSITORY

UPDATES = dict(attention_span=8, dropout=0.1, max_update=4, bf16=True, no_save=True, disable_validation=True)
LOOPS = ("ops/feedback/", "modules/relative_transformer.py")


class CountedOperations(TorchDispatchMode):
    """Counts torch's operations by who asks for them: ``loop``, ``ours``, ``fairseq``; and those that wait."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        files = [frame.filename for frame in traceback.extract_stack()[:-1]]
        asking = [
            name for name in files if "-packages/torch/" not in name and not name.startswith(f"{REPOSITORY}/tests/")
        ]
        who = "fairseq"
        if any(part in name for name in asking for part in LOOPS):
            who = "loop"
        elif asking and asking[-1].startswith(f"{REPOSITORY}/fb_fairseq"):
            who = "ours"
        self.counts[who] += 1
        if operation.name() == "aten::_local_scalar_dense" and any(tensor.dim() == 0 for tensor in args):
            self.counts[f"{who} waits"] += 1
        return operation(*args, **(kwargs or {}))


def test_few_operations_of_an_update_are_ours(byte_data, tmp_path, monkeypatch):
    """In the last of four updates, this package asks for at most 64 operations outside of the loop, and waits for one
    at most; the loop and fairseq ask for hundreds each, so they have been counted."""
    by_update = []
    step = Trainer.train_step

    def counted(self, samples, **options):
        with CountedOperations() as mode:
            result = step(self, samples, **options)
        by_update.append(mode.counts)
        return result

    monkeypatch.setattr(Trainer, "train_step", counted)
    train(byte_data, tmp_path, **UPDATES)
    assert len(by_update) == 4
    last = by_update[-1]
    assert last["loop"] > 300 and last["fairseq"] > 300
    assert last["ours"] <= 64 and last["ours waits"] <= 1  # (which is on a CPU)
