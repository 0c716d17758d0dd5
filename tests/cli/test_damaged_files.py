"""Damaged and odd files: every command that reads them ends with its result or one line.

Prints how many ended how. ``FB_FAIRSEQ_SEED`` and ``FB_FAIRSEQ_FILES`` choose the files' seed and number.
"""

import collections
import os
import pathlib
import random
import shutil

import pytest
import torch

from fb_fairseq.errors import STATUS
from tests.cli.fairseq_commands import PLUGIN, train, training_arguments
from tests.damage import damage, odd_checkpoint, odd_file, with_value

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("FB_FAIRSEQ_SEED", 1))
FILES = int(os.environ.get("FB_FAIRSEQ_FILES", 60))  # of each kind
SECONDS = 60  # more is a hang


@pytest.fixture(scope="module")
def trained(byte_data, tmp_path_factory):
    """A run in mid-epoch, with learned weights of layers, adaptive spans, and its streams' memory."""
    folder = tmp_path_factory.mktemp("trained")
    train(byte_data, folder, max_update=4, adaptive_span=True, disable_validation=True, no_epoch_checkpoints=True)
    return folder


class Outcomes(collections.Counter):
    """Runs commands, and counts how they end."""

    def __init__(self, commands, kind: str):
        super().__init__()
        self.commands, self.kind = commands, kind
        self.wrong = []

    def run(self, what: str, *argv) -> None:
        """Run a command on a file to which ``what`` was done."""
        result = self.commands.run(*argv, seconds=SECONDS)
        errors = [line for line in result.errors if line.strip()]
        if result.status == 0:
            outcome = "result"
        elif result.status == STATUS and "error:" in errors[-1] and not any("Traceback" in line for line in errors):
            outcome = "one line"
        else:
            outcome = {-14: "hang"}.get(result.status, "traceback" if result.status > 0 else "signal")
        self[outcome] += 1
        if outcome not in ("result", "one line"):
            self.wrong.append(f"{outcome}: {what}: {' '.join(map(str, argv))}: {errors[-1:]}")

    def check(self) -> None:
        """Print the counts, and fail if anything ended otherwise than it should."""
        print(f"{self.kind}, seed {SEED}: {', '.join(f'{number} {name}' for name, number in sorted(self.items()))}")
        assert not self.wrong, "\n".join(self.wrong)


@pytest.fixture
def outcomes(commands, request):
    return Outcomes(commands, request.node.name)


def readers(path, data, out: pathlib.Path):
    """Commands that read a checkpoint, by a name."""
    on_data = [data, "--user-dir", PLUGIN, "--cpu", "--task", "streaming_lm"]
    new = training_arguments(data, out, max_update=6, adaptive_span=True, disable_validation=True)
    new += ["--user-dir", PLUGIN, "--log-format", "none"]
    return {
        "eval-lm": ("fairseq-eval-lm", *on_data, "--path", path),
        "validate": ("fairseq-validate", *on_data, "--path", path, "--valid-subset", "valid"),
        "generate": ("fb-fairseq", "generate", "--path", path, "--data", data, "--cpu", "--length", 3),
        "average": ("fb-fairseq", "average-checkpoints", "--inputs", path, path, "--output", out / "averaged.pt"),
        "weights": ("fb-fairseq", "plot", "--layer-weights", path, "--out", out / "weights.png"),
        "spans": ("fb-fairseq", "plot", "--spans", path, "--out", out / "spans.png"),
        "export": ("fb-fairseq", "export", path, "--to", out / "model", "--dict", data),
        "restore": ("fairseq-train", *new, "--restore-file", path),
        "finetune": ("fairseq-train", *new, "--finetune-from-model", path),
        "initialise": ("fairseq-train", *new, "--init-from-transformer", path),
    }


def listing(folder):
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.fixture
def copies(tmp_path):
    """Numbered copies of a folder, each with a new folder for results, which is removed afterwards."""

    def make(folder):
        for number in range(FILES):
            copy, out = tmp_path / f"copy{number}", tmp_path / f"out{number}"
            shutil.copytree(folder, copy)
            out.mkdir()
            yield copy, out
            shutil.rmtree(out)
        assert not (tmp_path / "it ran").exists()

    return make


def test_odd_values_in_checkpoints(outcomes, byte_data, trained, tmp_path, copies):
    content, draw = torch.load(trained / "checkpoint_last.pt", weights_only=True), random.Random(SEED)
    for copy, out in copies(trained):
        what, changed = odd_checkpoint(draw, content, tmp_path / "it ran")
        torch.save(changed, copy / "checkpoint_last.pt")
        commands = readers(copy / "checkpoint_last.pt", byte_data, out)
        before = listing(copy) + listing(byte_data)
        for name in draw.sample(list(commands), 4):
            outcomes.run(what, *commands[name])
        assert listing(copy) + listing(byte_data) == before
    outcomes.check()


def test_large_options_in_checkpoints(outcomes, byte_data, trained, tmp_path):
    content = torch.load(trained / "checkpoint_last.pt", weights_only=True)
    for name in [name for name, value in content["cfg"]["model"].items() if isinstance(value, int)]:
        path = tmp_path / f"{name}.pt"
        torch.save(with_value(content, ("cfg", "model", name), 10**9), path)
        commands = readers(path, byte_data, tmp_path)
        for command in ("eval-lm", "export"):
            outcomes.run(f"{name} = 10^9", *commands[command])
    outcomes.check()


def test_odd_values_in_the_memory_of_streams(outcomes, byte_data, trained, tmp_path, copies):
    memory, draw = next(trained.glob("stream_memory.*")), random.Random(SEED)
    content = torch.load(memory, weights_only=True)
    for copy, out in copies(trained):
        what, changed = odd_checkpoint(draw, content, tmp_path / "it ran")
        torch.save(changed, copy / memory.name)
        outcomes.run(what, *readers(copy / "checkpoint_last.pt", byte_data, out)["restore"])
    outcomes.check()


def test_odd_values_in_agents(outcomes, commands, tmp_path, copies):
    options = ["--small", "--cpu", "--environments", 2, "--block", 5, "--log-interval", 1]
    training = ["fb-fairseq", "rl", "train", *options, "--out"]
    assert commands.run(*training, tmp_path / "run", "--frames", 20).status == 0
    content, draw = torch.load(tmp_path / "run/checkpoint.pt", weights_only=True), random.Random(SEED)
    for copy, _ in copies(tmp_path / "run"):
        what, changed = odd_checkpoint(draw, content, tmp_path / "it ran")
        torch.save(changed, copy / "checkpoint.pt")
        outcomes.run(what, "fb-fairseq", "rl", "evaluate", "--path", copy / "checkpoint.pt", "--episodes", 2, "--cpu")
        outcomes.run(what, *training, copy, "--frames", 40)
    outcomes.check()


def test_damaged_checkpoints(outcomes, byte_data, trained, copies):
    draw = random.Random(SEED)
    for copy, out in copies(trained):
        chosen = draw.choice(sorted(path for path in copy.iterdir() if path.name != ".lock"))
        what = draw.choice([damage, damage, odd_file])(draw, chosen)
        commands = readers(copy / "checkpoint_last.pt", byte_data, out)
        for name in ["restore"] if "memory" in chosen.name else draw.sample(list(commands), 3):
            outcomes.run(what, *commands[name])
    outcomes.check()


def test_damaged_data(outcomes, byte_data, trained, copies):
    draw = random.Random(SEED)
    names = ["dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx", "test.idx", "test.bin"]
    for copy, out in copies(byte_data):
        what = draw.choice([damage, damage, damage, odd_file])(draw, copy / draw.choice(names))
        commands = readers(trained / "checkpoint_last.pt", copy, out)
        for name in ("restore", "eval-lm", "validate"):
            outcomes.run(what, *commands[name])
    outcomes.check()


def test_damaged_exports(outcomes, commands, byte_data, trained, tmp_path, copies):
    export = ["fb-fairseq", "export", trained / "checkpoint_last.pt", "--to", tmp_path / "model", "--dict", byte_data]
    assert commands.run(*export).status == 0
    draw = random.Random(SEED)
    for copy, out in copies(tmp_path / "model"):
        chosen = draw.choice([path for path in sorted(copy.iterdir()) if path.name != "README.md"])
        what = draw.choice([damage, damage, damage, odd_file])(draw, chosen)
        outcomes.run(what, "fb-fairseq", "import-transformers", copy, "--out", out / "back.pt")
    outcomes.check()
