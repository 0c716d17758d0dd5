"""Every sentence is used exactly once, whatever ``--required-batch-size-multiple`` is. (fairseq-fixed alone, which
Python 3.12 needs, drops the last batch.)"""

from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest

from tests.cli import parallel_text
from tests.cli.fairseq_commands import preprocess

NUMBER = 13
MULTIPLE = {"required_batch_size_multiple": 8}  # the default, which the other tests of translation change


@contextmanager
def batches(step):
    """Yields a list that gets the sentences' numbers of each batch, in order, that comes to this method of fairseq's
    ``Trainer``."""
    from fairseq.trainer import Trainer

    call = getattr(Trainer, step)
    found = []

    def recorded(self, samples, *args, **kwargs):
        given = samples if isinstance(samples, list) else [samples]
        found.append(sorted(number for sample in given for number in sample["id"].tolist()))
        return call(self, samples, *args, **kwargs)

    with mock.patch.object(Trainer, step, recorded):
        yield found


def test_translation(tmp_path):
    """In training, validation and generation."""
    for seed, split in enumerate(("train", "valid", "test")):
        parallel_text.write_pairs(tmp_path / split, parallel_text.pairs(NUMBER, seed))
    data = preprocess(tmp_path, **parallel_text.LANGUAGES)
    with batches("train_step") as trained, batches("valid_step") as validated:
        parallel_text.train(data, tmp_path, max_epoch=1, **MULTIPLE)
    log = parallel_text.generate(data, tmp_path / "checkpoint_last.pt", batch_size=None, max_len_b=3, **MULTIPLE)
    everything = list(range(NUMBER))
    assert sorted(sum(trained, [])) == sorted(sum(validated, [])) == everything
    assert sorted(parallel_text.hypotheses(log)) == everything


LENGTHS = np.array([3, 4, 4, 5, 5, 5, 6, 7, 7, 9, 9, 9, 9, 10, 10, 11, 12, 12, 13, 14])


def formed(indices, known=None, **options):
    """The batches that fairseq forms of these sentences, whose lengths are those of ``LENGTHS``."""
    from fairseq.data import data_utils

    found = data_utils.batch_by_size(indices, lambda i: int(LENGTHS[i]), known, **options)
    return [batch.tolist() if hasattr(batch, "tolist") else list(batch) for batch in found]


@pytest.mark.parametrize("multiple", [1, 3, 8])
@pytest.mark.parametrize("limits", [{"max_sentences": 5}, {"max_tokens": 40}, {"max_tokens": 60, "max_sentences": 9}])
def test_batches(multiple, limits):
    """Within the limits, in the order of the sentences."""
    for number in (0, 1, 4, 13, 20):
        indices = np.arange(number)[::-1].copy()
        for known in (None, LENGTHS[indices]):
            found = formed(indices, known, required_batch_size_multiple=multiple, **limits)
            assert sum(found, []) == indices.tolist()
            for batch in found:
                assert len(batch) <= limits.get("max_sentences", 99)
                assert len(batch) * max(LENGTHS[batch]) <= limits.get("max_tokens", 999)


@pytest.mark.parametrize("multiple,sizes", [(1, [5, 5, 3]), (3, [3, 3, 3, 3, 1]), (8, [5, 5, 3])])
def test_sizes_of_batches(multiple, sizes):
    """Of the multiple where that is possible, as fairseq 0.12.2 forms them."""
    found = formed(np.arange(NUMBER), required_batch_size_multiple=multiple, max_sentences=5)
    assert [len(batch) for batch in found] == sizes


def test_a_resumed_run_has_the_same_batches(tmp_path):
    """Resumed in the middle of the second epoch, a run sees the rest of the epoch's sentences, and no other."""
    data = parallel_text.preprocess(tmp_path)
    changes = dict(max_tokens=150, disable_validation=True, no_epoch_checkpoints=True)
    with batches("train_step") as whole:
        parallel_text.train(data, tmp_path / "whole", max_epoch=2, **changes)
    with batches("train_step") as parts:
        parallel_text.train(data, tmp_path / "parts", max_update=len(whole) // 2 + 5, **changes)
        parallel_text.train(data, tmp_path / "parts", max_epoch=2, **changes)
    assert parts == whole
    assert sorted(sum(whole[len(whole) // 2 :], [])) == list(range(400))
