"""examples/benchmark/gpu.sh and gpu.py: one page with what ran, what failed, and every fallback."""

import json
import os
import subprocess
import sys

import pytest
import torch

from fb_fairseq.ops.feedback.loops import loop_on
from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / "examples/benchmark/gpu.py"


@pytest.fixture
def gpu(script):
    return script("gpu")


def python(title, code, gpu, logs=False):
    return gpu.Measurement(title, [sys.executable, "-c", code], logs)


def test_page(gpu, monkeypatch, tmp_path, capsys, caplog):
    """A measurement, one with a fallback, a training, one that fails, one that takes too long, one that is skipped."""
    loop_on("triton", torch.device("cpu"))
    fallback = caplog.messages[-1]
    made_up = [
        python("A table", r"print('    tokens/s\nfast  1\n{\"speed\": 1}')", gpu),
        python("With Triton", f"print({fallback!r})", gpu),
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
    assert "Written by `bash examples/benchmark/gpu.sh --cpu --minutes 0.05 --out out`;" in page
    problems = page.split("## Problems and fallbacks\n\n")[1].split("\n\n")[0]
    assert problems.splitlines() == [
        f"- With Triton: {fallback}",
        "- **Too new: failed with status 1: no kernel for this device**",
        "- **Too long: stopped: the time was up**",
        "- Not run: not run, the time was up",
    ]
    assert "```\n    tokens/s\nfast  1\n```" in page and "\nmodel(...)" not in page and "train_inner | wps=7" in page
    lines = [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()]
    assert [line["title"] for line in lines] == [m.title for m in made_up[:-1]] and lines[0]["speed"] == 1
    assert (tmp_path / "out/too-long.log").read_text() == "begun\n"


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


def test_paths_are_those_of_the_caller(gpu, monkeypatch, tmp_path):
    """Though commands run in the repository."""
    monkeypatch.chdir(tmp_path)
    words = "--cpu --train char-PTB --ptb texts --out here".split()
    monkeypatch.setattr(sys, "argv", ["gpu.py", *words])
    args = gpu.parse()
    assert (args.ptb, args.out) == (tmp_path / "texts", tmp_path / "here")


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
    problems = text.split("## Problems and fallbacks\n\n")[1].split("\n\n")[0]
    assert problems.startswith("- Every loop, a tiny speed test, bf16: --step-loop cpp: ") and "\n" not in problems
    for part in ("Environment", "fairseq-train, --amp", "Training, tiny, fp32", "Decoding, tiny"):
        assert f"## {part}" in text
