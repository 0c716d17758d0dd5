"""Recipes from their data to their results: small models on made-up data, trained for a few updates."""

import importlib.util
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
LONGEST = 25  # lines of a recipe of one's own


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
    """Trained, fine-tuned, evaluated, drawn; again, nothing runs; another setting is refused."""
    data, out = made_up_corpus("enwik8", recipe.folder), recipe.folder / "out"
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
    for figure in ("curves.png",):
        assert (out / figure).read_bytes().startswith(PNG)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name[0] != "."}
    again = recipe("enwik8", *arguments, "--out", "out")
    assert again.count("done already") == len(re.findall(r"^\[", again, re.MULTILINE)) and "## enwik8" in again
    assert times == {path: path.stat().st_mtime_ns for path in times}
    refused = recipe("enwik8", *arguments, "--out", "out", "--", "--dropout", "0.7", fails=True)
    assert (
        f"out/{TRANSFORMER}-1: was begun with other settings: dropout 0.7 instead of nothing; choose another --out"
        in refused
    )
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
    """Models and memory compositions; other options are refused."""
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
    refused = recipe("word_problem", *arguments, "--", "--width", 32, "--tokens", 32, fails=True)
    assert "width 32 instead of 16; choose another --out" in refused
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
    assert 0 < bits < 9 and (out / "quickstart.png").read_bytes().startswith(PNG)
    assert (out / "checkpoints.sample").read_text().startswith("def __init__(self")
    assert "max_update 5 instead of 4" in recipe("quickstart", "--text", "my text", "--updates", 5, fails=True)


def test_a_recipe_of_ones_own(recipe):
    """Three learning rates, as docs/recipes.md says."""
    text, *_ = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(text.splitlines()) <= LONGEST
    (recipe.folder / "learning_rates.py").write_text(text)
    (recipe.folder / "text.txt").write_bytes(made_up_text(20_000, 1))
    (command,) = re.findall(r"^python -m fb_fairseq recipe (learning_rates.py .*)$", PAGE, re.MULTILINE)
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
    listed = re.findall(r"^python -m fb_fairseq recipe *(|[a-z_]+ .*--(?:help|print))(?: *#.*)?$", PAGE, re.MULTILINE)
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


MEASURED = ("commit", "seconds", "training_days")  # differ from run to run


def start(out):
    """Start a recipe in a process of its own."""
    command = [sys.executable, "-m", "fb_fairseq", "recipe", "random_walk", "--out", out, "--models", TRANSFORMER]
    command += ["--updates", 60, *SMALL, "--", "--save-interval-updates", 5, "--validate-interval-updates", 5]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(list(map(str, command)), cwd=REPOSITORY, env=environment, start_new_session=True, **pipes)


def stop(process, how):
    """End the recipe: as when the machine is switched off, or by Ctrl-C."""
    if how == "interrupted":
        process.send_signal(signal.SIGINT)
    else:
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
        process.send_signal(signal.SIGKILL)
        for child in children.stdout.split():
            os.kill(int(child), signal.SIGKILL)
    process.communicate()


def measured(folder):
    return [{name: value for name, value in run.items() if name not in MEASURED} for run in results(folder).values()]


@pytest.mark.parametrize("how", ["interrupted", pytest.param("killed", marks=pytest.mark.slow)])
def test_resumed(tmp_path, how):
    """Stopped in its training and run again, a recipe has the results of an uninterrupted one."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    output, _ = start(whole).communicate()
    assert (whole / "results.json").exists(), output[-2000:]
    process, log = start(parts), parts / f"{TRANSFORMER}.log"
    wait_for(lambda: log.exists() and log.read_text().count('"num_updates"') > 5 or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0][-2000:]
    stop(process, how)
    assert not (parts / "results.json").exists() and process.returncode == (130 if how == "interrupted" else -9)
    output, _ = start(parts).communicate()
    assert (parts / "results.json").exists(), output[-2000:]
    assert measured(parts) == measured(whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["char_ptb", "text8", "wikitext103"])
def test_small_recipe(recipe, name):
    data = made_up_corpus(name, recipe.folder)
    data = "." if data == recipe.folder else data.name
    recipe(name, "--small", data, "--layers", 1, "--updates", 3, "--finetune-updates", 2, "--out", "out")
    found = results(recipe.folder / "out")
    feedback, baseline = (found[f"{model}-1"]["parameters"] for model in ("feedback_transformer_lm", TRANSFORMER))
    assert feedback - baseline == 2, "the weights of the memory"
    assert len(found) == 6 and len(list((recipe.folder / "out").glob("*.sample"))) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,models,runs",
    [
        ("ablation", "transformer-post feedback-pre-span-bptt", ["feedback-pre-span-bptt-1", "transformer-post-1"]),
        ("training_time", "transformer-post initialised-bptt", ["initialised-bptt-1", "transformer-post-1"]),
        ("end_of_line", "without-eos with-eos", ["with-eos-1", "without-eos-1", "without-eos-1-finetuned"]),
    ],
)
def test_experiments_on_wikitext(recipe, name, models, runs):
    made_up_corpus("wikitext103", recipe.folder)
    short = ["--layers", 1, "--updates", 4, "--finetune-updates", 2, "--models", models]
    recipe(f"wikitext103_{name}", "--small", ".", *short, "--out", "out")
    found = results(recipe.folder / "out")
    assert list(found) == runs and (recipe.folder / "out/hours.png").exists() == (name == "training_time")
    if name == "training_time":
        days = [found[run]["training_days"] * 86400 for run in runs]
        assert days[0] > days[1] and days[1] == pytest.approx(found[runs[1]]["seconds"], abs=1), (
            "the Transformer's, too"
        )


@pytest.mark.slow
@pytest.mark.parametrize("task", ["copy", "reverse", "counting", "random_walk", "blocked_random_walk", "algorithmic"])
@pytest.mark.parametrize("scale", ["--small", "--full"])
def test_each_task(recipe, task, scale):
    """The full settings with a tiny model, to check that their options are compatible."""
    shape = ["--layers", 1, "--", "--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--batch-size", 4]
    lengths = ["--length", 5, "--test-length", 9] if task in ("copy", "reverse") else []
    arguments = [scale, "--out", "out", "--updates", 2, *SMALL, "--train", 300, *lengths]
    models = ["--models", f"feedback_transformer_lm {TRANSFORMER}"]
    recipe(task, *arguments, *(models + shape if scale == "--full" else []))
    assert len(results(recipe.folder / "out")) == (2 if scale == "--full" else 3)


@pytest.mark.slow
def test_curriculum(recipe):
    """Each stage starts from the one before it, with the same dictionaries; the result counts the time of all."""
    model = "feedback_transformer_lm"
    arguments = ["--curriculum", "2 4", "--statements", 8, "--updates", 2, "--models", model, *SMALL, "--train", 300]
    recipe("algorithmic", *arguments, "--out", "out")
    out = recipe.folder / "out"
    for stage, length in (("-2", 2), ("-4", 4), ("", 8)):
        programs = (out / f"text/data{stage}/train.input").read_text().splitlines()
        assert {program.count(";") for program in programs} == {length}
        assert (out / f"data{stage}/dict.label.txt").read_text() == (out / "data/dict.label.txt").read_text()
    (result,) = results(out).values()
    assert result["num_updates"] == 6 and result["updates"] == 2 and "--curriculum 2,4" in result["data"]
    assert result["settings"]["finetune_from_model statements"] == "4"


@pytest.mark.slow
def test_memory_composition(recipe):
    made_up_corpus("char_ptb", recipe.folder)
    arguments = ["--seeds", 1, "--layers", 1, "--walk-updates", 2, "--updates", 2, "--finetune-updates", 1]
    recipe("memory_composition", "--small", *arguments, "--out", "out", ".")
    assert len(results(recipe.folder / "out/walk")) == 6 and len(results(recipe.folder / "out/char_ptb")) == 12
    assert (recipe.folder / "out/composition.png").read_bytes().startswith(PNG)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wmt14_en_de", "cnn_dm"])
def test_other_translations(recipe, name):
    data = made_up_parallel_corpus(recipe.folder / "data", name)
    recipe(name, "--small", data.name, "--layers", 1, "--updates", 2, "--out", "out")
    found = results(recipe.folder / "out")
    assert list(found) == ["feedback-1", "initialised-1", "transformer-1"]
    assert found["feedback-1"]["parameters"] - found["transformer-1"]["parameters"] == 2, "the weights of the memory"
    assert "parameters from " in (recipe.folder / "out/initialised-1.log").read_text()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch.distributed") is None, reason="needs torchrun")
def test_launched(recipe):
    """Two processes train what one trains with twice as many parts of an update."""
    data = made_up_corpus("enwik8", recipe.folder)
    arguments = ["--small", data.name, "--layers", 1, "--models", TRANSFORMER, "--updates", 2, "--finetune-updates", 0]
    launch = ["--launch", "torchrun --no-python --nproc_per_node 2", "--processes", 2]
    recipe(
        "enwik8",
        *arguments,
        "--out",
        "two",
        *launch,
        "--",
        "--distributed-backend",
        "gloo",
        "--ddp-backend",
        "legacy_ddp",
    )
    recipe("enwik8", *arguments, "--out", "one", "--update-freq", 2)
    runs = read_runs("one") + read_runs("two")
    assert runs[0]["dev_bits_per_token"] == pytest.approx(runs[1]["dev_bits_per_token"], abs=1e-3)
    (group,) = grouped(runs)
    assert len(group.runs) == 1, "the same settings and seed"
