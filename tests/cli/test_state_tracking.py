"""The recipes of state tracking, from training to the figure."""

import json
import re
import shlex

import pytest

from fb_fairseq.papers.state_tracking import architectures
from fb_fairseq.papers.state_tracking.command import main
from tests.cli.recipes import PNG, recipe  # noqa: F401
from tests.conftest import REPOSITORY
from tests.papers.steps.printed import commands as found
from tests.papers.steps.printed import printed

PAGE = (REPOSITORY / "docs/state-tracking.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("bash")
]

QUICK = ["--longest", "4", "--updates", "3", "--test-sequences", "50", "--", "--width", "16", "--tokens", "32"]


def test_word_problem(tmp_path, recipe):  # noqa: F811
    """Models and memory compositions; again, it trains nothing; other options are refused."""
    out = tmp_path / "out"
    given = ["--group", "S3", "--models", "feedback previous", "--lrs", "0.02", "--out", out, *QUICK]
    first = recipe("word_problem", *given)
    assert first.out.count("at least 90 % right up to length") == 2
    results = json.loads((out / "results.json").read_text())
    assert set(results) == {f"{model}-lr0.02-seed1" for model in ("feedback", "previous")}
    table = (out / "results.md").read_text().splitlines()
    assert table[0].count("% at ") == 4 and "| % at 2 | % at 4 | % at 16 | % at 64 |" in table[0]
    titles = {row.split(" | ")[0] for row in table[2:]}
    assert titles == {"| Feedback Transformer", "| Feedback Transformer, memory previous"}
    assert all(row.endswith("| 0.02 | 1 |") for row in table[2:])
    assert table[0].endswith("| % without a mistake | slips per step | learning rate | seeds |")
    speeds = json.loads((out / "speed.json").read_text())["steps_per_second"]
    assert speeds["feedback"]["decoding"] > 0 and speeds["feedback"]["training"] > 0
    assert (out / "accuracy.png").read_bytes().startswith(PNG)
    log = out / "feedback-lr0.02-seed1.log"
    assert "update 3 of 3" in log.read_text()
    recipe("word_problem", *given)
    assert "update 3 of 3" not in log.read_text()
    given[given.index("16")] = "32"
    refused = recipe("word_problem", *given, fails=True).errors
    assert "was made with --width 16, not 32; give another --out" in refused


def test_recall(tmp_path, recipe):  # noqa: F811
    recipe("recall", "--models", "lstm", "--no-speed", "--out", tmp_path, *QUICK)
    (run,) = json.loads((tmp_path / "results.json").read_text()).values()
    assert run["recipe"] == "recall" and len(run["accuracy"]) == len(run["sizes"])
    assert (tmp_path / "results.md").read_text().count("% at ") == 3 and not (tmp_path / "speed.json").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[1:3]))
def test_commands_of_the_page(command):
    """They train what the page says: each model once per seed, learning rate and span."""
    name = re.fullmatch(r"examples/synthetic_tasks/(\w+)\.sh", command[1])[1]
    trainings = found(printed(name, *command[2:]), "python -m fb_fairseq state-tracking train")
    given = dict(zip(command[2:], command[3:]))
    models = given.get("--models", "feedback transformer lstm").split()
    runs = [given.get(option, "1").split() for option in ("--seeds", "--lrs", "--spans")]
    assert len(trainings) == len(models) * len(runs[0]) * len(runs[1]) * len(runs[2])


def test_a_model_of_ones_own(tmp_path):
    """The code of the page."""
    _, code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})
    try:
        options = ["--group", "parity", "--longest", "4", "--updates", "1", "--width", "16", "--tokens", "16"]
        main(["train", "--model", "gru", "--out", str(tmp_path), *options, "--device", "cpu"])
    finally:
        del architectures.ARCHITECTURES["gru"]
    assert json.loads((tmp_path / "result.json").read_text())["title"] == "GRU"


def test_every_model_is_on_the_page():
    for name in architectures.ARCHITECTURES:
        assert f"`{name}`" in PAGE, name
