"""What docs/recipes.md and docs/state-tracking.md show: recipes and models of one's own, and commands."""

import json
import re
import shlex

from fb_fairseq.papers.state_tracking import architectures
from fb_fairseq.papers.state_tracking.command import main as state_tracking
from tests.cli.conftest import made_up_text
from tests.conftest import REPOSITORY
from tests.papers.steps.printed import printed

PNG = b"\x89PNG"
PAGE = (REPOSITORY / "docs/recipes.md").read_text(encoding="utf-8")
STATE_TRACKING = (REPOSITORY / "docs/state-tracking.md").read_text(encoding="utf-8")
LONGEST = 20  # lines of a recipe of one's own


def test_a_recipe_of_ones_own(recipe, odd_folder):
    """Three learning rates, as docs/recipes.md says."""
    text, *_ = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len([line for line in text.splitlines() if line]) <= LONGEST
    (odd_folder / "learning_rates.py").write_text(text)
    (odd_folder / "text.txt").write_bytes(made_up_text(20_000, 1))
    (command,) = re.findall(r"^fb-fairseq recipe (learning_rates.py .*)$", PAGE, re.MULTILINE)
    name, source, *_ = shlex.split(command)
    recipe(name, source, "--seeds", "2", "--updates", 2)
    out = odd_folder / "runs/learning_rates"
    found = json.loads((out / "results.json").read_text())
    rates = (0.001, 0.002, 0.004)
    assert list(found) == [f"feedback-lr{lr}-seed2" for lr in rates]
    assert [result["lr"] for result in found.values()] == list(rates)
    for figure in ("lr.png", "curves.png"):
        assert (out / figure).read_bytes().startswith(PNG)


def test_commands_of_the_page(commands):
    """Those that need no data. (That of a toy task of one's own: tests/papers/toy_tasks/test_new_task.py.)"""
    listed = re.findall(r"^fb-fairseq recipe *(|[a-z_]+ .*--(?:help|print))(?: *#.*)?$", PAGE, re.MULTILINE)
    *of_the_package, own = listed
    assert len(of_the_package) == 3 and own.startswith("parity ")
    for line in of_the_package:
        done = commands.run("fb-fairseq", "recipe", *shlex.split(line))
        assert done.status == 0 and len(done.out) > 9, (line, done.errors)


def test_steps_of_ones_own(tmp_path):
    """A training for each learning rate and span, named as the page says."""
    _, text, _ = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "rates.py").write_text(text)
    shown = printed(str(tmp_path / "rates.py"), "--lrs", "0.001 0.003 0.01")
    runs = re.findall(r"^# \[\d+/7\] train (.*)$", shown, re.MULTILINE)
    assert runs == [f"span{span}-lr{rate}-seed1" for rate in (0.001, 0.003, 0.01) for span in (4, 8)]


def test_a_model_of_ones_own(tmp_path):
    """The code of docs/state-tracking.md."""
    _, code = re.findall(r"```python\n(.*?)```", STATE_TRACKING, re.DOTALL)
    exec(code, {})
    try:
        options = ["--group", "parity", "--longest", "4", "--updates", "1", "--width", "16", "--tokens", "16"]
        state_tracking(["train", "--model", "gru", "--out", str(tmp_path), *options, "--device", "cpu"])
    finally:
        del architectures.ARCHITECTURES["gru"]
    assert json.loads((tmp_path / "result.json").read_text())["title"] == "GRU"


def test_every_model_is_on_the_page():
    for name in architectures.ARCHITECTURES:
        assert f"`{name}`" in STATE_TRACKING, name
