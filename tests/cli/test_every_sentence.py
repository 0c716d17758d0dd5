"""Every sentence is used exactly once, whatever ``--required-batch-size-multiple`` is. (fairseq-fixed alone, which
Python 3.12 needs, drops the last batch.)"""

from unittest import mock

import numpy as np
import pytest

from tests.cli import parallel_text
from tests.cli.fairseq_commands import preprocess

NUMBER = 13
MULTIPLE = {"required_batch_size_multiple": 8}  # the default, which the other tests of translation change


def sentences(samples):
    """The numbers of the sentences in batches."""
    return [number for sample in samples for number in sample["id"].tolist()]


def used(data, save_dir, **changes):
    """The sentences of an epoch, and of the validation after it."""
    from fairseq.trainer import Trainer

    trained, validated = [], []
    train_step, valid_step = Trainer.train_step, Trainer.valid_step

    def on_train(self, samples, *args, **kwargs):
        trained.extend(sentences(samples))
        return train_step(self, samples, *args, **kwargs)

    def on_valid(self, sample, *args, **kwargs):
        validated.extend(sentences([sample]))
        return valid_step(self, sample, *args, **kwargs)

    with mock.patch.object(Trainer, "train_step", on_train), mock.patch.object(Trainer, "valid_step", on_valid):
        parallel_text.train(data, save_dir, max_epoch=1, **changes)
    return sorted(trained), sorted(validated)


def test_translation(tmp_path):
    """In training, validation and generation."""
    for seed, split in enumerate(("train", "valid", "test")):
        parallel_text.write_pairs(tmp_path / split, parallel_text.pairs(NUMBER, seed))
    data = preprocess(tmp_path, **parallel_text.LANGUAGES)
    everything = list(range(NUMBER))
    assert used(data, tmp_path, **MULTIPLE) == (everything, everything)
    log = parallel_text.generate(data, tmp_path / "checkpoint_last.pt", batch_size=None, max_len_b=3, **MULTIPLE)
    assert sorted(parallel_text.hypotheses(log)) == everything


@pytest.mark.parametrize("multiple", [1, 3, 8])
@pytest.mark.parametrize("limits", [{"max_sentences": 5}, {"max_tokens": 40}, {"max_tokens": 60, "max_sentences": 9}])
def test_batches(multiple, limits):
    """Within the limits, in the order of the sentences, and of the multiple where that is possible: as fairseq 0.12.2
    forms them."""
    from fairseq.data import data_utils

    lengths = np.array([3, 4, 4, 5, 5, 5, 6, 7, 7, 9, 9, 9, 9, 10, 10, 11, 12, 12, 13, 14])
    for number in (0, 1, 4, 13, 20):
        indices = np.arange(number)[::-1].copy()
        for known in (None, lengths[indices]):
            batches = data_utils.batch_by_size(
                indices, lambda i: int(lengths[i]), known, required_batch_size_multiple=multiple, **limits
            )
            found = [batch.tolist() if hasattr(batch, "tolist") else list(batch) for batch in batches]
            assert [i for batch in found for i in batch] == indices.tolist()
            for batch in found:
                assert len(batch) <= limits.get("max_sentences", 99)
                assert len(batch) * max(lengths[i] for i in batch) <= limits.get("max_tokens", 999)
            if number == 13 and limits == {"max_sentences": 5}:
                assert list(map(len, found)) == {1: [5, 5, 3], 3: [3, 3, 3, 3, 1], 8: [5, 5, 3]}[multiple]


def test_a_resumed_run_has_the_same_batches(tmp_path):
    """Resumed in the middle of the second epoch, a run sees the rest of the epoch's sentences, and no other."""
    from fairseq.trainer import Trainer

    data = parallel_text.preprocess(tmp_path)
    seen, train_step = [], Trainer.train_step

    def on_train(self, samples, *args, **kwargs):
        seen.append(sorted(sentences(samples)))
        return train_step(self, samples, *args, **kwargs)

    changes = dict(max_tokens=150, disable_validation=True, no_epoch_checkpoints=True)
    with mock.patch.object(Trainer, "train_step", on_train):
        parallel_text.train(data, tmp_path / "whole", max_epoch=2, **changes)
        whole, seen = seen, []
        updates = len(whole) // 2 + 5
        parallel_text.train(data, tmp_path / "parts", max_update=updates, **changes)
        parallel_text.train(data, tmp_path / "parts", max_epoch=2, **changes)
    assert seen == whole and sorted(sum(whole[len(whole) // 2 :], [])) == list(range(400))
