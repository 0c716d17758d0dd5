"""The recipe of docs/recipes.md."""

import json
import re

from fb_fairseq.papers.runner.command import main
from tests.cli.conftest import made_up_text
from tests.cli.recipes import PNG, recipe  # noqa: F401
from tests.conftest import REPOSITORY

LONGEST = 30  # lines


def test_commands_of_the_page():
    """Those that need no data."""
    page = (REPOSITORY / "docs/recipes.md").read_text()
    found = re.findall(r"^python -m fb_fairseq recipe *(|[a-z_]+ .*--(?:help|print))(?: *#.*)?$", page, re.MULTILINE)
    assert len(found) == 3
    for command in found:
        try:
            assert main(command.split()) == 0
        except SystemExit as stop:
            assert stop.code == 0 and "--help" in command


def test_own_recipe(tmp_path, recipe, monkeypatch):  # noqa: F811
    """Three learning rates, as the page says, in the current folder."""
    page = (REPOSITORY / "docs/recipes.md").read_text()
    text, _ = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(text.splitlines()) <= LONGEST
    monkeypatch.chdir(tmp_path)
    (tmp_path / "learning_rates.py").write_text(text)
    (tmp_path / "text.txt").write_bytes(made_up_text(20_000, 1))
    (command,) = re.findall(r"^python -m fb_fairseq recipe (learning_rates.py .*)$", page, re.MULTILINE)
    arguments = command.replace('"', "").split(" --steps ")
    name, source = arguments[0].split()[:2]
    recipe(name, source, "--seeds", "2", "--updates", 2, "--steps", arguments[1])
    out = tmp_path / "runs/learning_rates"
    results = json.loads((out / "results.json").read_text())
    rates = (0.001, 0.002, 0.004)
    assert sorted(results) == sorted(f"feedback-lr{lr}-seed2" for lr in rates)
    assert {result["lr"] for result in results.values()} == set(rates)
    for figure in ("lr.png", "curves.png"):
        assert (out / figure).read_bytes().startswith(PNG)
