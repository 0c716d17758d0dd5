"""A recipe of each family is killed in the middle, and run again: the results are those of an uninterrupted one."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.cli.recipes import made_up_corpus, made_up_parallel_corpus
from tests.conftest import REPOSITORY
from tests.surroundings import wait_for

TINY = ["--", "--log-interval", 2, "--save-interval", 4, "--environments", 4, "--block", 10, "--width", 8, "--limit", 5]
MEASURED = ("seconds", "training_days", "decoded_tokens_per_second", "hardware")  # differ from run to run

# Of each family: a recipe, its arguments, and the log in which an update shows that training has begun.
FAMILIES = {
    "enwik8": (["--small", "DATA", "--layers", 1, "--updates", 40, "--finetune-updates", 20], "-1.log", "num_updates"),
    "iwslt14_de_en": (["--small", "DATA", "--layers", 1, "--updates", 40], "-1.log", "num_updates"),
    "random_walk": (["--updates", 60, "--train", 80, "--valid", 8, "--test", 8], ".log", "num_updates"),
    "maze": (["--agents", "lstm", *TINY, "--frames", 4000], "/log.jsonl", "frames"),
}
MODELS = {"enwik8": "relative_transformer_lm", "iwslt14_de_en": "feedback", "random_walk": "relative_transformer_lm"}


def start(name, arguments, out):
    arguments = ["--out", out, *arguments]
    if name in MODELS:
        arguments = ["--models", MODELS[name], *arguments]
        if name != "random_walk":
            arguments += ["--", "--save-interval-updates", 5, "--validate-interval-updates", 5]
    command = [sys.executable, "-m", "fb_fairseq", "recipe", name, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return subprocess.Popen(command, cwd=REPOSITORY, env=environment, start_new_session=True, **pipes)


def kill(process):
    """End the recipe and the command that it runs at once, as when the machine is switched off."""
    subprocess.run(["pkill", "-9", "-P", str(process.pid)], check=True)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)


def results(folder):
    found = json.loads((folder / "results.json").read_text())
    runs = found["all"] if "all" in found else list(found.values())
    return [{name: value for name, value in run.items() if name not in MEASURED} for run in runs]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_resumed(tmp_path, name, how):
    arguments, end, logged = FAMILIES[name]
    data = tmp_path
    if name == "enwik8":
        data = made_up_corpus(name, tmp_path)
    elif name == "iwslt14_de_en":
        data = made_up_parallel_corpus(tmp_path / "data", name)
    arguments = [data if argument == "DATA" else argument for argument in arguments]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    output, _ = start(name, arguments, whole).communicate(timeout=600)
    assert (whole / "results.json").exists(), output[-2000:]
    process = start(name, arguments, parts)
    log = parts / f"{MODELS.get(name, 'lstm-seed1')}{end}"
    is_training = lambda: log.exists() and log.read_text().count(f'"{logged}"') > 5
    wait_for(lambda: is_training() or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0][-2000:]
    if how == "killed":
        kill(process)
    else:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
    assert not (parts / "results.json").exists()
    output, _ = start(name, arguments, parts).communicate(timeout=600)
    assert (parts / "results.json").exists(), output[-2000:]
    assert results(parts) == results(whole)
