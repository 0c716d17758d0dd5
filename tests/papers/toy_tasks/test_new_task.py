"""The toy task of docs/recipes.md: one file, which the commands find."""

import re

import pytest

from fb_fairseq.papers import toy_tasks
from fb_fairseq.papers.toy_tasks.common.command import main
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs/recipes.md").read_text(encoding="utf-8").split("## A toy task of your own")[1]


@pytest.fixture
def parity(tmp_path, monkeypatch):
    """The page's file, in a folder of toy tasks; returns the arguments of the page's commands."""
    (text,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "parity.py").write_text(text)
    monkeypatch.setattr(toy_tasks, "__path__", [*toy_tasks.__path__, str(tmp_path)])
    return [line.replace('"', "") for line in re.findall(r"^fb-fairseq (.*)$", PAGE, re.MULTILINE)]


def test_data(parity, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(parity[0].split()[1:])
    inputs, labels = ((tmp_path / f"parity/train.{side}").read_text().split("\n") for side in ("input", "label"))
    assert len(inputs) == 10_001
    for given, found in zip(inputs[:100], labels):
        bits = [int(bit) for bit in given.split()]
        assert len(bits) == 16 and found.split() == [str(sum(bits[:i]) % 2) for i in range(1, 17)]


def test_recipe(parity):
    pytest.importorskip("fairseq")
    from tests.papers.steps.printed import commands, printed

    assert "recipe parity --seeds 1 2 --spans 4 16 --print" == parity[1]
    text = printed("parity", "--seeds", "1 2", "--spans", "4 16", "--length", "9")
    generated = commands(text, "python -m fb_fairseq synthetic-tasks parity")
    assert len(generated) == 2 and all(words[words.index("--length") + 1] == "9" for words in generated)
    assert len(commands(text, "fairseq-train")) == 10  # the LSTM has no span
