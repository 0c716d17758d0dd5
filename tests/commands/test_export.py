"""fb-fairseq export: its options, however the model is written."""

import pytest

from fb_fairseq.commands.export import command
from fb_fairseq.errors import UserError
from fb_fairseq.trained_model import TrainedModel

PATHS = ["a.pt", "--to", "model"]


@pytest.fixture
def written(monkeypatch, tmp_path):
    """What is written: the arguments, with the model's facts as they are then; and the model."""
    monkeypatch.chdir(tmp_path)
    model = TrainedModel("a.pt", {}, {}, facts={"data": "x", "notes": [["seed", "1"], ["time", "1 h"]]})
    calls = []
    monkeypatch.setattr(command, "read_model", lambda *given: calls.append(given) or model)
    monkeypatch.setattr(command, "write_folder", lambda *given, **options: calls.append((given, options)) or ["b", "c"])
    return calls, model


def test_options(written, capsys):
    """Facts and notes of the checkpoint stay where none are given."""
    calls, model = written
    more = ["--dict", "d", "--source-lang", "de", "--target-lang", "en", "--bpe-codes", "codes", "--dtype", "float16"]
    command.main([*PATHS, *more, "--license", "mit", "--note", "time=2 h", "--note", "a=b=c", "--overwrite"])
    options = dict(codes="codes", overwrite=True, dtype="float16")
    assert calls == [("a.pt", "d", "de", "en"), (("export", "model", model), options)]
    notes = [("seed", "1"), ("time", "2 h"), ("a", "b=c")]
    assert model.facts == {"data": "x", "license": "mit", "notes": notes}
    assert capsys.readouterr().out == "model: b, c\n"


def test_defaults(written):
    calls, model = written
    command.main(PATHS)
    assert calls[1] == (("export", "model", model), dict(codes=None, overwrite=False, dtype=None))


@pytest.mark.parametrize("note", ["a", "a=", "=b"])
def test_notes_have_a_name_and_a_text(note, written):
    with pytest.raises(UserError, match=f"--note {note}: give NAME=TEXT"):
        command.export(command.build_parser().parse_args([*PATHS, "--note", note]))


def test_models_whose_codes_are_not_known(written):
    written[1].splits_words = True
    with pytest.raises(UserError, match="a.pt: has no codes of its subwords; give its checkpoint with --bpe-codes"):
        command.export(command.build_parser().parse_args(PATHS))
