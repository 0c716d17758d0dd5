"""Checkpoints of fairseq as ``TrainedModel``: where their dictionaries are found."""

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.models.dictionaries import read_dictionaries
from fb_fairseq.trained_model import TrainedModel
from tests.models.decoders import dictionary


def test_dictionary_of_the_training_data(tmp_path, monkeypatch):
    """Else that beside the checkpoint; of the working folder only if the training data were there."""
    for words, name in enumerate(("beside", "data", "here")):
        (tmp_path / name).mkdir()
        dictionary(words).save(str(tmp_path / name / "dict.txt"))
    monkeypatch.chdir(tmp_path / "here")
    for task, words in (({"data": tmp_path / "data"}, 1), ({"data": "."}, 2), ({"data": "nowhere"}, 0), ({}, 0)):
        model = TrainedModel(str(tmp_path / "beside/model.pt"), {"arch": "feedback_transformer_lm"}, {}, task)
        read_dictionaries(model)
        assert len(model.symbols["dict.txt"]) == 4 + words, task


@pytest.mark.parametrize("given", ["data", "data/dict.txt"])
def test_dictionary_that_is_given(given, tmp_path):
    """Its folder, or the only one's file."""
    (tmp_path / "data").mkdir()
    dictionary(3).save(str(tmp_path / "data/dict.txt"))
    model = TrainedModel(str(tmp_path / "model.pt"), {"arch": "feedback_transformer_lm"}, {})
    read_dictionaries(model, str(tmp_path / given))
    assert len(model.symbols["dict.txt"]) == 4 + 3


def test_one_file_is_no_dictionary_of_two_languages(tmp_path):
    dictionary(3).save(str(tmp_path / "dict.txt"))
    task = {"source_lang": "de", "target_lang": "en"}
    model = TrainedModel(str(tmp_path / "model.pt"), {"arch": "feedback_decoder"}, {}, task)
    with pytest.raises(UserError, match="dict.txt/dict.de.txt is missing; give the folder of its training data"):
        read_dictionaries(model, str(tmp_path / "dict.txt"))


@pytest.mark.parametrize("known", [{}, {"source_lang": "de"}, {"target_lang": "en"}])
def test_languages_that_nothing_tells(known, tmp_path):
    model = TrainedModel(str(tmp_path / "model.pt"), {"arch": "feedback_decoder"}, {}, dict(known))
    with pytest.raises(UserError, match="does not say its languages, .*; give --source-lang and --target-lang"):
        read_dictionaries(model)
