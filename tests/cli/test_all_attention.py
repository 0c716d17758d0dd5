"""The all-attention model's optimizer through fairseq's commands."""

import torch

from tests.cli.checkpoints import assert_same_parameters
from tests.cli.fairseq_commands import json_logs, train

# As the paper trains on characters (§5.1), but for the sizes.
PAPER = dict(
    arch="all_attention_lm",
    decoder_normalize_before=False,
    no_epoch_checkpoints=True,
    optimizer="clipped_adagrad",
    lr=0.07,
    clip_norm=0,
    lr_scheduler="fixed",
    warmup_updates=10,
    adaptive_span=True,
    adaptive_span_ramp=4,
    adaptive_span_loss=1e-4,
)


def test_decay_with_the_optimizers_state(byte_data, tmp_path):
    """The paper's last phase: a tenth of the learning rate, Adagrad's sums kept."""
    train(byte_data, tmp_path / "a", max_update=20, disable_validation=True, **PAPER)
    changes = {**PAPER, "lr": 0.007, "warmup_updates": 0, "disable_validation": True}
    changes["continue_once"] = tmp_path / "a/checkpoint_last.pt"
    log = train(byte_data, tmp_path / "b", max_update=25, **changes)
    logged = json_logs(log, "train_inner")[-1]
    assert float(logged["lr"]) == 0.007 and float(logged["num_updates"]) == 25
    train(byte_data, tmp_path / "c", max_update=22, **changes)
    train(byte_data, tmp_path / "c", max_update=25, **changes)
    assert_same_parameters(tmp_path / "b/checkpoint_last.pt", tmp_path / "c/checkpoint_last.pt")
    sums = [
        torch.load(tmp_path / f"{run}/checkpoint_last.pt", weights_only=True)["last_optimizer_state"]["state"][0]["sum"]
        for run in "ab"
    ]
    assert (sums[1] >= sums[0]).all() and sums[1].sum() > sums[0].sum()
