"""examples/benchmark/gpu.sh and gpu.py: one page with what ran, what failed, and every fallback."""

import argparse
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from fb_fairseq.papers.results.record import write_record
from fb_fairseq.papers.values import load
from tests.conftest import REPOSITORY
from tests.papers.steps.printed import commands, printed, trainings

SCRIPT = REPOSITORY / "examples/benchmark/gpu.py"


@pytest.fixture(scope="module")
def gpu():
    spec = importlib.util.spec_from_file_location("gpu_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python(title, code, gpu, logs=False):
    return gpu.Measurement(title, [sys.executable, "-c", code], logs)


def test_page(gpu, monkeypatch, tmp_path, capsys):
    """A measurement, one with a fallback, a training, one that fails, one that takes too long, one that is skipped."""
    made_up = [
        python("A table", r"print('    tokens/s\nfast  1\n{\"speed\": 1}')", gpu),
        python("With Triton", "print('WARNING --step-loop triton: failed: no memory; the torch loop runs')", gpu),
        python("A training", "print('| INFO | train_inner | wps=7\\nmodel(...)')", gpu, logs=True),
        python("Too new", "raise SystemExit('no kernel for this device')", gpu),
        python("Too long", "import time; print('begun', flush=True); time.sleep(60)", gpu),
        python("Not run", "", gpu),
    ]
    monkeypatch.setattr(gpu, "measurements", lambda cpu, folder: list(made_up))
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--cpu", "--minutes", "0.05", "--out", str(tmp_path / "out")])
    assert gpu.main() == 1
    printed = capsys.readouterr().out
    assert "\033[31mfailed with status 1: no kernel for this device\033[0m" in printed
    (path,) = (tmp_path / "out").glob("*.md")
    assert f"Page: {path}" in printed
    page = path.read_text(encoding="utf-8")
    problems = page.split("## Problems and fallbacks\n\n")[1].split("\n\n")[0]
    assert problems.splitlines() == [
        "- With Triton: WARNING --step-loop triton: failed: no memory; the torch loop runs",
        "- **Too new: failed with status 1: no kernel for this device**",
        "- **Too long: stopped: the time was up**",
        "- Not run: not run, the time was up",
    ]
    assert "```\n    tokens/s\nfast  1\n```" in page and "\nmodel(...)" not in page and "train_inner | wps=7" in page
    lines = [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()]
    assert [line["title"] for line in lines] == [m.title for m in made_up[:-1]] and lines[0]["speed"] == 1
    assert (tmp_path / "out/too-long.log").read_text() == "begun\n"


def test_what_is_measured_on_a_gpu(gpu, tmp_path, monkeypatch):
    """All sizes in both types, all precisions, two GPUs; every command's options exist."""
    from fb_fairseq.papers.benchmark.command import parse

    monkeypatch.setattr(gpu.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(gpu.torch.cuda, "is_available", lambda: True)
    found = gpu.measurements(False, tmp_path)
    titles = [measurement.title for measurement in found]
    assert {"Tests", "fairseq-train, --fp16", "Two GPUs, legacy_ddp", "Two GPUs, pytorch_ddp"} <= set(titles)
    assert {f"Training, {name}, {dtype}" for name in gpu.SIZES for dtype in ("fp32", "bf16")} <= set(titles)
    assert {f"fairseq-train, char-PTB size, {model}" for model in gpu.FAIRSEQ_MODELS} <= set(titles)
    assert {f"Decoding, char-PTB, bf16, {streams} streams" for streams in (1, 64)} <= set(titles)
    for measurement in found:
        if "benchmark" in measurement.command:
            parse(measurement.command[measurement.command.index("benchmark") + 1 :])


@pytest.mark.parametrize("name", ["walk", "A5", "S5", "char-PTB"])
@pytest.mark.parametrize("cpu", [True, False])
def test_experiments(gpu, tmp_path, name, cpu):
    """The Feedback Transformer comes first, and gets most of the time; sizes are the papers'."""
    args = argparse.Namespace(train=name, cpu=cpu, minutes=6, out=tmp_path, ptb=tmp_path)
    (tmp_path / name).mkdir()
    feedback, transformer = gpu.experiment(args)
    assert "feedback" in feedback.title and "transformer" in transformer.title
    assert (feedback.limit, transformer.limit) == pytest.approx((240, 120))
    words = feedback.command[feedback.command.index("recipe") + 1 :]
    text = printed(*words)
    tracks = name in ("A5", "S5")
    (training,) = commands(text, "python -m fb_fairseq state-tracking train" if tracks else "fairseq-train ")
    value = training[training.index("--minutes" if tracks else "--stop-time-hours") + 1]
    assert float(value) == pytest.approx(0.8 * 4 / (1 if tracks else 60), rel=0.01)
    if tracks:
        assert training[training.index("--group") + 1] == name
        assert cpu or training[training.index("--longest") + 1] == "128"
    elif not cpu:
        column = load("hyperparameters")["v3 Table 9"]["columns"][{"walk": "random walk"}.get(name, name)]
        (options,) = trainings(text)
        assert (options.decoder_layers, options.decoder_embed_dim) == (column["layers"], column["width"])
        assert (options.attention_span, options.tokens_per_sample) == (column["span"], column["block"])
        assert options.bf16


def test_an_experiment_goes_on(gpu, tmp_path):
    """For as many minutes as before, beside those that it has."""
    args = argparse.Namespace(train="walk", cpu=True, minutes=6, out=tmp_path, ptb=None)
    (tmp_path / "walk").mkdir()
    step = {"command": [], "settings": {}, "seconds": 120.0}
    write_record(str(tmp_path / "walk"), {"recipe": "random_walk", "steps": {"OUT/feedback_transformer_lm/a.pt": step}})
    hours = [float(found.command[found.command.index("--stop-time-hours") + 1]) for found in gpu.experiment(args)]
    assert hours == pytest.approx([(2 + 3.2) / 60, 1.6 / 60], rel=0.01)


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--minutes", "0", "--cpu"], "--minutes 0: give a positive number"),
        ([], "torch finds no GPU; --cpu tries the script itself"),
        (["--train", "char-PTB", "--cpu"], "--train char-PTB and --ptb DIR: give both, or none"),
    ],
)
def test_bad_options(gpu, monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(gpu.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu.py", *arguments])
    with pytest.raises(SystemExit) as stop:
        gpu.main()
    assert stop.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words,message", [("--nosuch", "unknown option"), ("--minutes x", "give a"), ("--cpu --ptb", "needs a value")]
)
def test_bad_options_of_the_script(words, message, tmp_path):
    """Before it installs anything."""
    environment = {**os.environ, "FB_FAIRSEQ_VENV": str(tmp_path / "venv")}
    command = ["bash", str(SCRIPT.with_name("gpu.sh")), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode and message in done.stderr and len(done.stderr.splitlines()) == 1
    assert not done.stdout and not (tmp_path / "venv").exists()


@pytest.mark.slow
def test_on_the_cpu(tmp_path):
    """The whole script, as a user would try it."""
    environment = {**os.environ, "FB_FAIRSEQ_VENV": sys.prefix}
    command = ["bash", "examples/benchmark/gpu.sh", "--cpu", "--out", str(tmp_path / "out"), "--minutes", "5"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (page,) = (tmp_path / "out").glob("*.md")
    text = page.read_text(encoding="utf-8")
    assert "## Problems and fallbacks\n\nNone.\n" in text
    for part in ("Environment", "fairseq-train, --amp", "Training, tiny, fp32", "Decoding, tiny"):
        assert f"## {part}" in text


def test_what_fits_into_memory(capsys, monkeypatch):
    """Bytes are those that the block's parts take: here of random_walk, where they can be summed by hand."""
    spec = importlib.util.spec_from_file_location("gpu_memory", SCRIPT.with_name("gpu_memory.py"))
    memory = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(memory)
    recipe = memory.RECIPES[0]
    assert recipe.preset == "random_walk"
    options = memory.options_of(recipe.preset)
    found = memory.peak_bytes(options, recipe, memory.torch.float32)["stream"]
    T, S, D, L, H, F = recipe.steps, 100, 256, 4, 4, 1024
    slots = 2 * L * (S + T) * D
    least = 4 * (2 * slots + S * D + L * T * (H * S + F + 5 * D)) + L * T * (H * S + F)  # and the masks' bytes
    assert least < found < 2.2 * least
    monkeypatch.setattr(memory, "RECIPES", [recipe])
    monkeypatch.setattr(memory, "MODES", {"fp32": memory.MODES["fp32"]})
    monkeypatch.setattr(sys, "argv", ["gpu_memory.py", "--gigabytes", "2"])
    memory.main()
    assert "| `random_walk` | fp32 | " in capsys.readouterr().out
