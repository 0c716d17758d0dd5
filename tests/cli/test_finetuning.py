"""Training in two goes: fine-tuning at a tenth of the learning rate, and a rate that falls when the loss does not."""

import pytest
import torch

from tests.cli.checkpoints import assert_same_parameters
from tests.cli.fairseq_commands import RESETS, json_logs, train
from tests.conftest import on_ci


def rates(log):
    """The learning rates that were logged."""
    return [float(entry["lr"]) for entry in json_logs(log, "train_inner")]


def test_finetuning(byte_data, tmp_path):
    """It starts from the checkpoint's parameters with a new epoch, optimizer and schedule, and resumes by itself."""
    run = dict(disable_validation=True, no_epoch_checkpoints=True, log_interval=1)
    warm = dict(tokens_per_sample=8, bptt_warmup_tokens=4, bptt_warmup_iterations=5)
    train(byte_data, tmp_path / "a", **run, **warm, lr_scheduler="fixed", warmup_updates=5, max_update=15)
    fine = dict(**run, finetune_from_model=tmp_path / "a/checkpoint_last.pt", tokens_per_sample=12)
    log = train(byte_data, tmp_path / "still", **fine, lr=1e-30, max_update=1)
    assert rates(log) == [1e-30]
    assert_same_parameters(tmp_path / "a/checkpoint_last.pt", tmp_path / "still/checkpoint_last.pt")

    log = train(byte_data, tmp_path / "whole", **fine, lr=0.001, max_update=8)
    assert rates(log) == [0.001] * 8 and "no memory of the streams" not in log
    assert json_logs(log, "train_inner")[0]["epoch"] == 1 and "BPTT warm-up" not in log
    train(byte_data, tmp_path / "cut", **fine, lr=0.001, max_update=4)
    fine["finetune_from_model"].unlink()  # only the first launch reads it
    log = train(byte_data, tmp_path / "cut", **fine, lr=0.001, max_update=8)
    assert len(rates(log)) == 4, "resumed, not begun anew"
    assert_same_parameters(tmp_path / "whole/checkpoint_last.pt", tmp_path / "cut/checkpoint_last.pt")


ENDED = {"best": 0.1, "num_runs": 5, "num_bad_epochs": 9}  # as if no loss could be better, for longer than any patience


@pytest.mark.parametrize("option,more", [("finetune_from_model", {}), on_ci("restore_file", RESETS)])
def test_another_runs_end_is_not_its_own(byte_data, tmp_path, option, more):
    """Patience, best loss, time and a plateau's scheduler of the run that it starts from do not end or change a run."""
    limits = dict(patience=2, stop_time_hours=1.0, max_epoch=3)
    plateau = dict(lr_scheduler="reduce_lr_on_plateau", lr_patience=3)
    run = dict(batch_size=60, no_epoch_checkpoints=True, log_interval=1, **plateau)
    train(byte_data, tmp_path / "old", **run, max_update=3)
    old = torch.load(tmp_path / "old/checkpoint_last.pt", weights_only=True)
    old["extra_state"].update(stopping=ENDED, best=0.1, val_loss=9.0, previous_training_time=7200.0)
    torch.save(old, tmp_path / "old.pt")
    start = {option: tmp_path / "old.pt", **more}
    log = train(byte_data, tmp_path / "new", **run, **limits, **start)
    assert len(json_logs(log, "valid")) == 3 and set(rates(log)) == {0.01}
    best = json_logs(log, "valid")[-1]["valid_best_loss"]
    assert float(best) == min(float(entry["valid_loss"]) for entry in json_logs(log, "valid"))
    assert torch.load(tmp_path / "new/checkpoint_last.pt", weights_only=True)["extra_state"]["stopping"]["best"] > 1
    log = train(byte_data, tmp_path / "ended", **run, **limits, restore_file=tmp_path / "old.pt")
    assert "this run is finished: 2 hours of --stop-time-hours 1" in log, "the same run, continued"


def test_decay_when_the_loss_stops_falling(byte_data, tmp_path):
    """fairseq's reduce_lr_on_plateau, with lm_loss on streams, over a stop and a resume."""
    # Only half the loss counts as better: once, from an infinite one.
    run = dict(lr=0.01, lr_scheduler="reduce_lr_on_plateau", lr_shrink=0.1, lr_patience=0, lr_threshold=0.5)
    run.update(no_epoch_checkpoints=True, batch_size=60, log_interval=1)
    log = train(byte_data, tmp_path / "whole", **run, max_epoch=4)
    per_epoch = [[], [], [], []]
    for entry in json_logs(log, "train_inner"):
        per_epoch[entry["epoch"] - 1].append(float(entry["lr"]))
    assert [set(epoch) for epoch in per_epoch] == [{0.01}, {0.01}, {0.001}, {0.0001}]
    losses = [float(entry["valid_loss"]) for entry in json_logs(log, "valid")]
    assert losses[1] > losses[0] / 2, "a plateau in the sense of the threshold"
    middle = len(per_epoch[0]) * 3 + 2  # (stopped at an epoch's end, fairseq forgets that epoch's decay)
    train(byte_data, tmp_path / "cut", **run, max_update=middle)
    log = train(byte_data, tmp_path / "cut", **run, max_epoch=4)
    assert set(rates(log)) == {0.0001}
    assert_same_parameters(tmp_path / "whole/checkpoint_last.pt", tmp_path / "cut/checkpoint_last.pt")
