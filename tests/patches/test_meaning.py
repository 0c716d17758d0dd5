"""What is said of models that are loaded with another task or other options than in their training."""

import argparse
import enum
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

import fb_fairseq.models  # noqa: F401  with the patches
import fb_fairseq.tasks  # noqa: F401  registers the task
from fb_fairseq.errors import UserError
from fb_fairseq.patches import meaning
from fb_fairseq.tasks.streaming_lm import StreamingLMTask


@pytest.mark.parametrize(
    "overrides,message,refused",
    [
        ({"layers": 2}, "Error(s) in loading state_dict for X", True),
        ({"layers": 2}, "out of memory", False),
        ({}, "Error(s) in loading state_dict for X", False),
    ],
)
def test_overrides_that_change_shapes(overrides, message, refused):
    """Are named; other errors are as they were."""

    def load(filenames, arg_overrides=None):
        raise RuntimeError(message)

    error, match = (UserError, "--path a.pt: its parameters are not those") if refused else (RuntimeError, "^(Err|out)")
    with pytest.raises(error, match=match):
        meaning._load_and_compare(load, ["a.pt"], arg_overrides=overrides)


def test_configurations_as_dicts():
    """Their choices are text, however fairseq keeps them."""

    class Choice(enum.Enum):
        none = "none"

    for cfg in (OmegaConf.create({"choice": Choice.none, "size": 3}), argparse.Namespace(choice=Choice.none, size=3)):
        found = meaning.as_dict(cfg)
        assert found["size"] == 3 and isinstance(found["choice"], str) and found["choice"].endswith("none")


@pytest.mark.parametrize("trained,told", [("streaming_lm", True), ("translation", False)])
def test_streams_that_are_read_by_another_task(monkeypatch, caplog, trained, told):
    known = SimpleNamespace(task={"_name": trained}, dictionaries={})
    monkeypatch.setattr(meaning, "account_of", lambda path: known)
    meaning._check_task("a.pt", SimpleNamespace(cfg=argparse.Namespace()))
    assert ("a.pt: was trained with --task streaming_lm" in caplog.text) == told
    caplog.clear()
    own = object.__new__(StreamingLMTask)
    own.cfg = own.args = argparse.Namespace()
    monkeypatch.setattr(meaning, "task_dictionaries", lambda task: {})
    meaning._check_task("a.pt", own)
    assert not caplog.messages
