"""Recipes from their data to their results: small models on made-up data, trained for a few updates."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest

from fb_fairseq.hardware import training_hardware
from fb_fairseq.papers.results.runs import grouped, read_runs
from fb_fairseq.papers.state_tracking import architectures
from fb_fairseq.papers.state_tracking.command import main as state_tracking
from tests.cli.conftest import made_up_text
from tests.cli.corpora import made_up_corpus, made_up_parallel_corpus
from tests.cli.odd_names import ODD_NAME
from tests.conftest import REPOSITORY
from tests.papers.steps.printed import commands as found
from tests.papers.steps.printed import printed
from tests.surroundings import wait_for

PNG = b"\x89PNG"
TRANSFORMER = "relative_transformer_lm"
SMALL = ["--train", 80, "--valid", 8, "--test", 8]
QUICK = ["--longest", 4, "--updates", 3, "--test-sequences", 50]
TINY = ["--", "--width", 16, "--tokens", 32]
TINY_AGENT = ["--", "--frames", 80, "--environments", 4, "--block", 10, "--width", 8, "--limit", 5]
PAGE = (REPOSITORY / "docs/recipes.md").read_text(encoding="utf-8")
LONGEST = 20  # lines of a recipe of one's own


@pytest.fixture
def recipe(commands, tmp_path, monkeypatch):
    """Runs a recipe in a folder with an odd name, with the programs of the command server; returns what it printed. It
    has to succeed, unless ``fails``."""
    folder = tmp_path / ODD_NAME
    folder.mkdir()
    monkeypatch.chdir(folder)
    environment = {"FB_FAIRSEQ_VENV": str(commands.folder), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}

    def run(name, *arguments, fails=False):
        done = commands.run("fb-fairseq", "recipe", name, *arguments, environment=environment)
        assert (done.status != 0) == fails, "\n".join(done.out[-30:] + done.errors[-5:])
        return "\n".join(done.out + done.errors)

    run.folder = folder
    return run


def results(folder):
    return json.loads((folder / "results.json").read_text())


def test_language_models(recipe):
    """Trained, fine-tuned, evaluated, drawn; again, nothing runs."""
    data = made_up_corpus("enwik8", recipe.folder)
    out = recipe.folder / "out"
    arguments = ["--small", data.name, "--layers", 1, "--models", TRANSFORMER, "--updates", 2, "--finetune-updates", 1]
    printed = recipe("enwik8", *arguments, "--out", "out")
    assert "test_bits_per_token" in printed and "## enwik8, small setting" in printed
    found = results(out)
    assert list(found) == [f"{TRANSFORMER}-1", f"{TRANSFORMER}-1-finetuned"]
    for result in found.values():
        assert 1 < result["test_bits_per_token"] < 40 and result["parameters"] > 10_000
        assert result["hardware"].split(",")[0] == training_hardware().split(",")[0] and result["seconds"] > 0
        assert result["settings"]["data text"].startswith("20000 bytes") and result["commit"]
    tuned = found[f"{TRANSFORMER}-1-finetuned"]["settings"]
    assert (tuned["lr"], tuned["finetune_from_model lr"], tuned["finetune_from_model max_update"]) == (
        "0.0002",
        "0.002",
        "2",
    )
    assert (out / "curves.png").read_bytes().startswith(PNG)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name[0] != "."}
    again = recipe("enwik8", *arguments, "--out", "out")
    assert again.count("done already") == len(re.findall(r"^\[", again, re.MULTILINE)) and "## enwik8" in again
    assert times == {path: path.stat().st_mtime_ns for path in times}
    data.write_bytes(made_up_text(20_000, 2))
    assert "data text 20000 bytes, CRC" in recipe("enwik8", *arguments, "--out", "out", fails=True)


def test_toy_task_with_several_seeds(recipe):
    """They are averaged; what is trained otherwise is another row."""
    arguments = ["--out", "out", "--models", TRANSFORMER, *SMALL]
    recipe("blocked_random_walk", *arguments, "--updates", 2, "--seeds", "1 2", "--span", 20, "--jobs", 2)
    recipe("blocked_random_walk", *arguments, "--updates", 3, "--seeds", "3", "--span", 20)
    groups = grouped(read_runs("out"))
    assert [[run["seed"] for run in group.runs] for group in groups] == [[1, 2], [3]]
    (first, *_), (other,) = (group.runs for group in groups)
    assert first["settings"]["adaptive_span_init"] == "0.4" and first["attention_span"] == 20 and first["labels"] == 800
    assert (first["num_updates"], other["num_updates"]) == (2, 3)
    table = (recipe.folder / "out/compared.md").read_text()
    assert len(re.findall(rf"^\| {TRANSFORMER}, 2 layers, span 20, .*max_update", table, re.MULTILINE)) == 2
    assert (recipe.folder / "out/curves.png").read_bytes().startswith(PNG)
    lines = (recipe.folder / "out/logs/draw-curves.log").read_text().splitlines()
    assert [line.count("=out/") for line in lines if line.startswith("python")] == [2, 1], "those of the call"


def test_translation(recipe):
    """From subwords to scores; what is done is not repeated."""
    data = made_up_parallel_corpus(recipe.folder / "data", "iwslt14_de_en")
    arguments = ["--small", data.name, "--layers", 1, "--models", "feedback", "--updates", 2, "--out", "out"]
    recipe("iwslt14_de_en", *arguments)
    (result,) = results(recipe.folder / "out").values()
    assert result["projections"] == "per-layer" and result["sentences"] == 20 and result["lenpen"] in (0.6, 1.0, 1.4)
    assert {"sacrebleu", "tokenized_bleu", "rougeLsum", "dev_nll", "dev_score", "decoded_tokens_per_second"} <= set(
        result
    )
    assert recipe("iwslt14_de_en", *arguments).count("done already") == 28


def test_state_tracking(recipe):
    """Models and memory compositions."""
    arguments = ["--group", "S3", "--models", "feedback previous", "--lrs", "0.02", "--out", "out", *QUICK]
    printed = recipe("word_problem", *arguments, *TINY)
    assert "| Feedback Transformer, memory previous |" in printed
    out = recipe.folder / "out"
    assert set(results(out)) == {f"{model}-lr0.02-seed1" for model in ("feedback", "previous")}
    table = (out / "results.md").read_text().splitlines()
    assert table[0].count("% at ") == 4 and all(row.endswith("| 0.02 | 1 |") for row in table[2:])
    speed = json.loads((out / "speed/feedback.txt").read_text().splitlines()[-1])["results"]
    assert speed["feedback"]["training"] > 0
    assert (out / "accuracy.png").read_bytes().startswith(PNG)
    recipe("word_problem", *arguments, "--seeds", 2, "--updates", 4, "--no-speed", *TINY)
    rows = [line for line in (out / "results.md").read_text().splitlines()[2:] if "memory" not in line]
    assert [row.split(" | ")[0] for row in rows] == [
        "| Feedback Transformer, updates 3",
        "| Feedback Transformer, updates 4",
    ]


def test_agents(recipe):
    for _ in range(2):
        recipe("maze", "--agents", "lstm", "--out", "out", *TINY_AGENT)
        (result,) = results(recipe.folder / "out").values()
        assert result["model"] == "lstm" and {"reward", "success", "seconds"} <= set(result)
        logs = (recipe.folder / "out/lstm/log.jsonl").read_text().splitlines()
        assert [json.loads(line)["frames"] for line in logs] == [80], "not trained twice"


def test_quickstart(recipe):
    """The README's command, on a text of one's own."""
    (recipe.folder / "my text").write_bytes(made_up_text(20_000, 1))
    printed = recipe("quickstart", "--text", "my text", "--updates", 4)
    bits = float(re.search(r"Test split: ([\d.]+) bits per byte \(1000 bytes\)", printed)[1])
    out = recipe.folder / "runs/quickstart"
    shown = [line.split()[0] for line in printed.splitlines() if line.endswith("\\") and not line.startswith(" ")]
    assert shown.count("fairseq-train") == 1 and "python -m fb_fairseq preprocess-bytes \\" in printed
    assert 0 < bits < 9 and (out / "quickstart.png").read_bytes().startswith(PNG)
    assert (out / "checkpoints.sample").read_text().startswith("def __init__(self")


def test_a_recipe_of_ones_own(recipe):
    """Three learning rates, as docs/recipes.md says."""
    text, *_ = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len([line for line in text.splitlines() if line]) <= LONGEST
    (recipe.folder / "learning_rates.py").write_text(text)
    (recipe.folder / "text.txt").write_bytes(made_up_text(20_000, 1))
    (command,) = re.findall(r"^fb-fairseq recipe (learning_rates.py .*)$", PAGE, re.MULTILINE)
    name, source, *_ = shlex.split(command)
    recipe(name, source, "--seeds", "2", "--updates", 2)
    out = recipe.folder / "runs/learning_rates"
    rates = (0.001, 0.002, 0.004)
    assert list(results(out)) == [f"feedback-lr{lr}-seed2" for lr in rates]
    assert [result["lr"] for result in results(out).values()] == list(rates)
    for figure in ("lr.png", "curves.png"):
        assert (out / figure).read_bytes().startswith(PNG)


def test_commands_of_the_page():
    """Those that need no data; the steps of one's own are those that the page says."""
    listed = re.findall(r"^fb-fairseq recipe *(|[a-z_]+ .*--(?:help|print))(?: *#.*)?$", PAGE, re.MULTILINE)
    assert listed == ["", "char_ptb --help", "char_ptb --small --print", 'parity --seeds "1 2" --spans "4 16" --print']


def test_steps_of_ones_own(tmp_path):
    _, text, _ = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "rates.py").write_text(text)
    shown = printed(str(tmp_path / "rates.py"), "--lrs", "0.001 0.003 0.01")
    runs = re.findall(r"^# \[\d+/7\] train (.*)$", shown, re.MULTILINE)
    assert runs == [f"span{span}-lr{rate}-seed1" for rate in (0.001, 0.003, 0.01) for span in (4, 8)]


STATE_TRACKING = (REPOSITORY / "docs/state-tracking.md").read_text(encoding="utf-8")


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


def script(name, *arguments, **variables):
    """Run a script of examples/ from elsewhere."""
    environment = {**os.environ, "FB_FAIRSEQ_VENV": sys.prefix, **variables}
    words = ["bash", str(REPOSITORY / "examples" / name), *map(str, arguments)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, cwd="/")


def test_scripts_are_thin_doors():
    """They print what the command does; without an environment, too."""
    (text,) = {
        script("synthetic_tasks/copy.sh", "--print", FB_FAIRSEQ_VENV=venv).stdout.count("\n# [")
        for venv in (sys.prefix, "/nowhere")
    }
    assert text == printed("copy").count("\n# [")
    assert found(script("recipe.sh", "maze", "--print").stdout, "python -m fb_fairseq rl train")
    assert "[--small|--full]" in script("synthetic_tasks/copy.sh", "--help").stdout
    done = script("recipe.sh")
    assert done.returncode and "the recipe is missing" in done.stderr


@pytest.mark.parametrize(
    "environment,message",
    [
        ({"FB_FAIRSEQ_VENV": "{}/a:b"}, 'a:b: PATH is split at ":"'),
        ({"FB_FAIRSEQ_VENV": "{}/$(exit)"}, "$(exit): set FB_FAIRSEQ_VENV to a folder without"),
        ({"PYTHON": "/bin/false", "FB_FAIRSEQ_VENV": "{}/venv"}, "error: PYTHON=/bin/false"),
        ({"FB_FAIRSEQ_VENV": "{}/3.13"}, "/3.13 has Python 3.13, on which fairseq does not"),
    ],
)
def test_bad_environments(tmp_path, environment, message):
    python = tmp_path / "3.13/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 3.13\n")
    python.chmod(0o755)
    variables = {key: value.format(tmp_path) for key, value in environment.items()}
    done = script("quickstart.sh", "--out", tmp_path / "out", **variables)
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and message in line
    assert [path.name for path in tmp_path.iterdir()] == ["3.13"]


SHORT = "--updates 2 --layers 1"
LANGUAGE_MODELS = f"--small . {SHORT} --finetune-updates 2"
TASKS = "--updates 2 --train 300 --valid 8 --test 8"
FULL = "--models feedback_transformer_lm --layers 1 -- --decoder-embed-dim 8 --decoder-ffn-embed-dim 8 --batch-size 4"
WALKS = "--seeds 1 --walk-updates 2"
# Recipes that are like those above, their arguments, and the number of runs in each file of results.
OTHERS = [
    ("wikitext103", LANGUAGE_MODELS, {"": 6}),
    ("wikitext103_ablation", f"{LANGUAGE_MODELS} --models 'transformer-post feedback-pre-span-bptt'", {"": 2}),
    ("wikitext103_training_time", f"{LANGUAGE_MODELS} --models 'transformer-post initialised-bptt'", {"": 2}),
    ("wikitext103_end_of_line", f"{LANGUAGE_MODELS} --models 'without-eos with-eos'", {"": 3}),
    ("memory_composition", f"{WALKS} {LANGUAGE_MODELS}", {"walk": 6, "char_ptb": 12}),
    ("wmt14_en_de", f"--small data {SHORT}", {"": 3}),
    ("cnn_dm", f"--small data {SHORT}", {"": 3}),
    ("algorithmic", f"--small {TASKS} --curriculum '2 4' --statements 8 --models feedback_transformer_lm", {"": 1}),
    *((task, f"--full {TASKS} {FULL}", {"": 1}) for task in ("copy", "blocked_random_walk", "algorithmic")),
]


@pytest.mark.slow
@pytest.mark.parametrize("name,arguments,runs", OTHERS)
def test_other_recipes(recipe, name, arguments, runs):
    """The full settings with a tiny model, to check that their options are compatible."""
    if name in ("wmt14_en_de", "cnn_dm"):
        made_up_parallel_corpus(recipe.folder / "data", name)
    else:
        made_up_corpus("char_ptb" if name == "memory_composition" else name, recipe.folder)
    recipe(name, "--out", "out", *shlex.split(arguments))
    assert {folder: len(results(recipe.folder / "out" / folder)) for folder in runs} == runs


MEASURED = ("commit", "seconds", "training_days", "decoded_tokens_per_second")  # differ from run to run


def measured(folder):
    return [{name: value for name, value in run.items() if name not in MEASURED} for run in results(folder).values()]


def test_resumed(tmp_path):
    """Interrupted in its training and run again, a recipe has the results of an uninterrupted one."""
    arguments = [*SMALL, "--models", TRANSFORMER, "--updates", 60]
    arguments += ["--", "--save-interval-updates", 5, "--validate-interval-updates", 5]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(out):
        command = [sys.executable, "-m", "fb_fairseq", "recipe", "random_walk", "--out", out, *arguments]
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        return subprocess.Popen(list(map(str, command)), cwd=REPOSITORY, env=environment, **pipes)

    whole = tmp_path / "whole"
    parts = tmp_path / "parts"
    output, _ = start(whole).communicate()
    assert (whole / "results.json").exists(), output[-2000:]
    process = start(parts)
    log = parts / f"{TRANSFORMER}.log"
    wait_for(lambda: process.poll() is not None or log.exists() and log.read_text().count('"num_updates"') > 5)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130 and not (parts / "results.json").exists(), output[-2000:]
    output, _ = start(parts).communicate()
    assert (parts / "results.json").exists(), output[-2000:]
    assert measured(parts) == measured(whole)
