"""Errors that come late, are fairseq's own, or no errors: what is said, and what is left."""

import torch

from fb_fairseq.folders import lock_folder
from tests.cli.fairseq_commands import PLUGIN, options, training_arguments
from tests.cli.own_commands import refused


def test_a_measure_that_validation_lacks(commands, byte_data, tmp_path):
    """Is known after the first validation only: what was trained until then is saved, and another measure resumes."""
    arguments = [*training_arguments(byte_data, tmp_path, max_update=4), "--user-dir", PLUGIN]
    metric = "--best-checkpoint-metric"
    for more in ("--no-save", "--no-last-checkpoints"):
        refused(commands.run("fairseq-train", *arguments, more, metric, "nosuch"), f"not saved, because of {more}")
        assert not any(path.is_file() and path.name != ".lock" for path in tmp_path.iterdir()), "nothing is left"
    message = rf"{metric} nosuch: validation does not measure .*checkpoint_last.pt is saved\)"
    refused(commands.run("fairseq-train", *arguments, metric, "nosuch"), message)
    assert torch.load(tmp_path / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 4
    resumed = commands.run("fairseq-train", *arguments, metric, "accuracy", "--max-update", 6)
    assert resumed.status == 0 and (tmp_path / "checkpoint_best.pt").exists()


def test_fairseqs_own_errors_keep_their_traceback(commands, byte_data, tmp_path):
    values = dict(task="language_modeling", arch="transformer_lm", max_tokens=100, cpu=True, no_save=True)
    arguments = [byte_data, *options(values), "--user-dir", PLUGIN, "--self-target"]
    result = commands.run("fairseq-train", *arguments, folder=tmp_path)  # fairseq makes a folder there
    assert "Unsupported language modeling target: self" in result.errors[-1]
    assert any(line.startswith("Traceback") for line in result.errors)


def test_evaluation_without_its_task(commands, byte_data, language_models):
    """fairseq's default task, language_modeling, gives another loss: the log says why."""
    common = [byte_data, "--user-dir", PLUGIN, "--cpu", "--path", language_models["feedback_transformer_lm"]]
    result = commands.run("fairseq-eval-lm", *common, "--sample-break-mode", "eos")
    assert result.status == 0, result.errors
    assert [line for line in result.out if "trained with --task streaming_lm" in line]
    result = commands.run("fairseq-eval-lm", *common, "--task", "streaming_lm")
    assert not [line for line in result.out if "trained with --task" in line]


def test_two_runs_in_one_folder(commands, byte_data, tmp_path):
    """The second is refused as long as the first runs, and touches nothing."""
    lock_folder("--save-dir", str(tmp_path))  # by this process, as long as it runs
    arguments = [*training_arguments(byte_data, tmp_path), "--user-dir", PLUGIN]
    message = f"--save-dir {tmp_path}: another run is writing to this folder; wait until it ends"
    refused(commands.run("fairseq-train", *arguments), message)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
