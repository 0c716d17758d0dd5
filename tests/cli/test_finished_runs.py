"""A finished run that is started again ends at once, says so, and leaves all files as they are."""

import pytest

from tests.cli.fairseq_commands import PLUGIN, training_arguments

EPOCHS = dict(no_epoch_checkpoints=True, batch_size=32, max_update=100)  # 14 updates each
WORSE = dict(maximize_best_checkpoint_metric=True)  # the loss falls, which then counts as worse
LIMITS = [
    (dict(max_update=9, disable_validation=True), "update 9 of --max-update 9", dict(max_update=11)),
    (dict(max_epoch=1, disable_validation=True), "epoch 1 of --max-epoch 1", dict(max_epoch=2)),
    (dict(stop_time_hours=1e-9, disable_validation=True), "--stop-time-hours 1e-09", dict(stop_time_hours=0)),
    (dict(stop_time_hours=1e-9, disable_validation=True), "--stop-time-hours 1e-09", dict(reset_meters=True)),
    (
        dict(WORSE, lr_scheduler="reduce_lr_on_plateau", lr_patience=1, stop_min_lr=0.005),
        "learning rate 0.001, --stop-min-lr 0.005",
        dict(stop_min_lr=0),
    ),
    (dict(WORSE, patience=2), "2 validations without improvement, --patience 2", dict(patience=0)),
]


def contents(folder):
    return {
        path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir() if path.name != ".lock"
    }


@pytest.mark.parametrize("limit,message,more", LIMITS, ids=lambda value: value if isinstance(value, str) else "")
def test_started_again(commands, byte_data, tmp_path, limit, message, more):
    def run(**changes):
        arguments = training_arguments(byte_data, tmp_path, **{**EPOCHS, **limit, **changes})
        result = commands.run("fairseq-train", *arguments, "--user-dir", PLUGIN)
        assert result.status == 0, result.errors
        return "\n".join(result.out)

    assert "this run is finished" not in run()
    before = contents(tmp_path)
    log = run()
    assert "this run is finished: " in log and f"{message}; nothing is trained" in log, log[-2000:]
    assert "Start iterating over samples" not in log and contents(tmp_path) == before
    assert "Start iterating over samples" in run(**more)
    assert contents(tmp_path) != before
