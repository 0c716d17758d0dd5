"""The recipe of docs/recipes.md."""

import json
import re

from fb_fairseq.papers.runner.command import RECIPES, main
from tests.cli.conftest import made_up_text
from tests.cli.recipes import PNG, recipe  # noqa: F401
from tests.conftest import REPOSITORY

LONGEST = 30  # lines
PAGE = (REPOSITORY / "docs/recipes.md").read_text(encoding="utf-8")


def test_commands_of_the_page():
    """Those that need no data."""
    found = re.findall(r"^python -m fb_fairseq recipe *(|[a-z_]+ .*--(?:help|print))(?: *#.*)?$", PAGE, re.MULTILINE)
    assert len(found) == 4
    for command in found[:3]:  # the last one: tests/papers/toy_tasks
        try:
            assert main(command.split()) == 0
        except SystemExit as stop:
            assert stop.code == 0 and "--help" in command


def test_own_recipe(tmp_path, recipe, monkeypatch):  # noqa: F811
    """Three learning rates, as the page says, in the current folder."""
    text, *_ = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(text.splitlines()) <= LONGEST
    monkeypatch.chdir(tmp_path)
    (tmp_path / "learning_rates.py").write_text(text)
    (tmp_path / "text.txt").write_bytes(made_up_text(20_000, 1))
    (command,) = re.findall(r"^python -m fb_fairseq recipe (learning_rates.py .*)$", PAGE, re.MULTILINE)
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


def test_settings_of_all_recipes():
    """The page names the file of each recipe, but for the toy tasks, which are listed."""
    rows = re.findall(r"^\| (`.*) \| \[\w+\.py\]\(\.\./(\S+)\)", PAGE, re.MULTILINE)
    found = {name: path for names, path in rows for name in re.findall("`(\\w+)`", names)}
    assert found == {name: where.split(":")[0].replace(".", "/") + ".py" for name, where in RECIPES.items()}


def test_own_sweep(tmp_path, capsys):
    """Six runs: the values of the command line, and the small setting's."""
    _, text, _ = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "rates.py").write_text(text)
    assert main([str(tmp_path / "rates.py"), "--lrs", "0.001 0.003 0.01", "--print"]) == 0
    runs = re.findall(r"^# train and test (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert runs == [f"feedback-span{span}-lr{rate}-seed1" for rate in (0.001, 0.003, 0.01) for span in (4, 8)]
