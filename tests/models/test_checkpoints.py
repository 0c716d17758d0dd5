"""Checkpoints of fairseq as ``TrainedModel``: where their dictionaries are found."""

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
