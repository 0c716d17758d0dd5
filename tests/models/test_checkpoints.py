"""Checkpoints of fairseq as ``TrainedModel``: where their dictionaries are found."""

import os

import pytest

from fb_fairseq.models.checkpoints import read_dictionaries
from fb_fairseq.trained_model import TrainedModel
from tests.models.decoders import dictionary


@pytest.fixture
def dictionaries(tmp_path, monkeypatch):
    """Folders ``beside``, ``data`` and ``here``, the working folder, with dictionaries of 5, 6 and 7 words."""
    for number, name in enumerate(("beside", "data", "here")):
        os.mkdir(tmp_path / name)
        dictionary(5 + number).save(str(tmp_path / name / "dict.txt"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def words_of(folder, data, given=None):
    """The number of words that a checkpoint in ``folder / "beside"``, trained on ``data``, has."""
    task = {} if data is None else {"data": str(data)}
    trained = TrainedModel(str(folder / "beside/checkpoint.pt"), {"arch": "feedback_transformer_lm"}, {}, task)
    read_dictionaries(trained, given)
    return len(trained.symbols["dict.txt"]) - 4


def test_dictionary_of_the_training_data(dictionaries):
    """Else that beside the checkpoint; of the working folder only if the training data were there."""
    found = {data: words_of(dictionaries, data) for data in (dictionaries / "data", "nowhere", "", None, ".")}
    assert list(found.values()) == [6, 5, 5, 5, 7]


def test_dictionary_that_is_given(dictionaries):
    """As a folder or a file, whatever the training data had."""
    data = dictionaries / "data"
    assert words_of(dictionaries, data, str(dictionaries / "here")) == 7
    assert words_of(dictionaries, data, str(dictionaries / "here/dict.txt")) == 7
