"""Training that starts from a checkpoint with other options: which ones may change, and which are refused."""

import pytest

from fb_fairseq.commands.average_checkpoints import main as average
from fb_fairseq.errors import UserError
from tests.cli.fairseq_commands import RESETS, train
from tests.cli.own_commands import one_line

TRAINED = dict(
    arch="relative_transformer_lm",
    relative_positions="none",
    no_decoder_final_norm=True,
    batch_size=30,
    max_update=2,
    disable_validation=True,
    no_epoch_checkpoints=True,
)
FEEDBACK = dict(arch="feedback_transformer_lm", memory_composition="average")
# (All options that parameters depend on: tests/test_meaning.py.)
OTHER_MEANINGS = [
    ({}, dict(decoder_attention_heads=4)),
    ({}, dict(**FEEDBACK, memory_projections="per-layer")),
    (dict(adaptive_span=True), dict(attention_span=20)),
]


@pytest.mark.parametrize("base,changes", OTHER_MEANINGS, ids=lambda options: next(iter(options), ""))
def test_options_that_parameters_depend_on(byte_data, tmp_path, capsys, base, changes):
    """Parameters of the same shapes would make another function: refused in every training, and in averages."""
    run = {**TRAINED, **base}
    path = tmp_path / "one/checkpoint_last.pt"
    train(byte_data, path.parent, **run)
    other = {**run, **changes}
    name = next(iter(changes)).replace("_", "-")
    message = f"{path}: was trained with --{name} "
    for how in (dict(finetune_from_model=path), dict(restore_file=path, **RESETS)):
        with pytest.raises(UserError, match=message):
            train(byte_data, tmp_path / "new", **other, **how)
    train(byte_data, tmp_path / "other", **other)
    inputs = [tmp_path / "other/checkpoint_last.pt", path]
    line = one_line(capsys, average, "--inputs", *inputs, "--output", tmp_path / "average.pt")
    assert message in line or "the names or shapes of parameters differ" in line


def test_options_that_may_change(byte_data, tmp_path):
    """Regularisation, how a step is computed and, without adaptive spans, how far a model sees."""
    changes = dict(dropout=0.1, decoder_layerdrop=0.1, step_loop="reference", tokens_per_sample=5, attention_span=20)
    train(byte_data, tmp_path / "a", **{**TRAINED, **FEEDBACK})
    start = tmp_path / "a/checkpoint_last.pt"
    train(byte_data, tmp_path / "b", **{**TRAINED, **FEEDBACK, **changes}, finetune_from_model=start)
