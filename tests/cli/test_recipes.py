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
from tests.cli.conftest import made_up_text
from tests.cli.corpora import made_up_corpus, made_up_parallel_corpus
from tests.conftest import REPOSITORY
from tests.surroundings import wait_for

PNG = b"\x89PNG"
TRANSFORMER = "relative_transformer_lm"
SMALL = ["--train", 80, "--valid", 8, "--test", 8]
QUICK = ["--longest", 4, "--updates", 3, "--test-sequences", 50]
TINY = ["--", "--width", 16, "--tokens", 32]
TINY_AGENT = ["--", "--frames", 80, "--environments", 4, "--block", 10, "--width", 8, "--limit", 5]


def results(folder):
    return json.loads((folder / "results.json").read_text())


def test_language_models(recipe, odd_folder):
    """Trained, fine-tuned, evaluated, drawn; again, nothing runs."""
    data = made_up_corpus("enwik8", odd_folder)
    out = odd_folder / "out"
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


def test_toy_task_with_several_seeds(recipe, odd_folder):
    """They are averaged; what is trained otherwise is another row."""
    arguments = ["--out", "out", "--models", TRANSFORMER, *SMALL]
    recipe("blocked_random_walk", *arguments, "--updates", 2, "--seeds", "1 2", "--span", 20, "--jobs", 2)
    recipe("blocked_random_walk", *arguments, "--updates", 3, "--seeds", "3", "--span", 20)
    groups = grouped(read_runs("out"))
    assert [[run["seed"] for run in group.runs] for group in groups] == [[1, 2], [3]]
    (first, *_), (other,) = (group.runs for group in groups)
    assert first["settings"]["adaptive_span_init"] == "0.4" and first["attention_span"] == 20 and first["labels"] == 800
    assert (first["num_updates"], other["num_updates"]) == (2, 3)
    table = (odd_folder / "out/compared.md").read_text()
    assert len(re.findall(rf"^\| {TRANSFORMER}, 2 layers, span 20, .*max_update", table, re.MULTILINE)) == 2
    assert (odd_folder / "out/curves.png").read_bytes().startswith(PNG)
    lines = (odd_folder / "out/logs/draw-curves.log").read_text().splitlines()
    assert [line.count("=./out/") for line in lines if line.startswith("python")] == [2, 1], "those of the call"


def test_translation(recipe, odd_folder):
    """From subwords to scores; what is done is not repeated."""
    data = made_up_parallel_corpus("iwslt14_de_en", odd_folder / "data")
    arguments = ["--small", data.name, "--layers", 1, "--models", "feedback", "--updates", 2, "--out", "out"]
    recipe("iwslt14_de_en", *arguments)
    (result,) = results(odd_folder / "out").values()
    assert result["projections"] == "per-layer" and result["sentences"] == 20 and result["lenpen"] in (0.6, 1.0, 1.4)
    assert {"sacrebleu", "tokenized_bleu", "rougeLsum", "dev_nll", "dev_score", "decoded_tokens_per_second"} <= set(
        result
    )
    assert recipe("iwslt14_de_en", *arguments).count("done already") == 28


def test_state_tracking(recipe, odd_folder):
    """Models and memory compositions."""
    arguments = ["--group", "S3", "--models", "feedback previous", "--lrs", "0.02", "--out", "out", *QUICK]
    printed = recipe("word_problem", *arguments, *TINY)
    assert "| Feedback Transformer, memory previous |" in printed
    out = odd_folder / "out"
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


def test_agents(recipe, odd_folder):
    for _ in range(2):
        recipe("maze", "--agents", "lstm", "--out", "out", *TINY_AGENT)
        (result,) = results(odd_folder / "out").values()
        assert result["model"] == "lstm" and {"reward", "success", "seconds"} <= set(result)
        logs = (odd_folder / "out/lstm/log.jsonl").read_text().splitlines()
        assert [json.loads(line)["frames"] for line in logs] == [80], "not trained twice"


def test_quickstart(recipe, odd_folder):
    """The README's command, on a text of one's own."""
    (odd_folder / "my text").write_bytes(made_up_text(20_000, 1))
    printed = recipe("quickstart", "--text", "my text", "--updates", 4)
    bits = float(re.search(r"Test split: ([\d.]+) bits per byte \(1000 bytes\)", printed)[1])
    out = odd_folder / "runs/quickstart"
    shown = [line.split()[0] for line in printed.splitlines() if line.endswith("\\") and not line.startswith(" ")]
    assert shown.count("fairseq-train") == 1 and "python -m fb_fairseq preprocess-bytes \\" in printed
    assert 0 < bits < 9 and (out / "quickstart.png").read_bytes().startswith(PNG)
    assert (out / "checkpoints.sample").read_text().startswith("def __init__(self")


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
def test_other_recipes(recipe, odd_folder, name, arguments, runs):
    """The full settings with a tiny model, to check that their options are compatible."""
    if name in ("wmt14_en_de", "cnn_dm"):
        made_up_parallel_corpus(name, odd_folder / "data")
    else:
        made_up_corpus("char_ptb" if name == "memory_composition" else name, odd_folder)
    recipe(name, "--out", "out", *shlex.split(arguments))
    assert {folder: len(results(odd_folder / "out" / folder)) for folder in runs} == runs


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
    before = log.read_text()
    output, _ = start(parts).communicate()
    assert (parts / "results.json").exists(), output[-2000:]
    later = log.read_text().removeprefix(before)
    assert "Loaded checkpoint" in later and '"num_updates": "1"' not in later
    assert measured(parts) == measured(whole)
