"""What ``lm_loss`` logs beside the loss: adaptive spans, which it lets shrink, and layer weights."""

import pytest
import torch

from tests.cli.checkpoints import loss_by_hand, parameters
from tests.cli.fairseq_commands import json_logs, train

SPANS = dict(
    attention_span=60,
    adaptive_span=True,
    adaptive_span_ramp=4,
    adaptive_span_init=0.5,
    adaptive_span_loss=0.002,
    no_epoch_checkpoints=True,
)


def test_spans_shrink_under_the_penalty(byte_data, tmp_path):
    """And only then; what is reported as loss holds no penalty."""
    log = train(byte_data, tmp_path / "a", max_update=60, **{**SPANS, "adaptive_span_loss": 0.1})
    first, last = (json_logs(log, "train_inner")[i] for i in (0, -1))
    assert float(last["avg_span"]) < float(first["avg_span"]) - 10
    free = train(byte_data, tmp_path / "b", max_update=60, **{**SPANS, "adaptive_span_loss": 0})
    assert float(json_logs(free, "train_inner")[-1]["avg_span"]) > float(last["avg_span"]) + 10
    zs = [z for name, z in parameters(tmp_path / "a/checkpoint_last.pt").items() if name.endswith("adaptive_span.z")]
    assert len(zs) == 2 and torch.cat(zs).min() == 0, "they are clamped"
    bits, _ = loss_by_hand(tmp_path / "a/checkpoint_last.pt", byte_data, "valid", 3)
    assert float(json_logs(log, "valid")[-1]["valid_total_bits"]) == pytest.approx(bits, rel=1e-6)


def test_layer_weights_are_logged_in_validation(byte_data, tmp_path):
    log = train(byte_data, tmp_path, max_update=3)
    logged = json_logs(log, "valid")[-1]
    weights = [float(logged[f"valid_layer_weight_{l}"]) for l in range(3)]
    assert sum(weights) == pytest.approx(1, abs=1e-3)
    assert "train_layer_weight_0" not in json_logs(log, "train")[-1]


def test_measures_in_tensorboard(byte_data, tmp_path):
    """What the JSON log shows, TensorBoard shows: bits per byte, accuracy, spans, layer weights."""
    pytest.importorskip("torch.utils.tensorboard")
    from fairseq.logging import progress_bar
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logs = tmp_path / "tensorboard"
    log = train(byte_data, tmp_path, max_update=20, tensorboard_logdir=logs, **SPANS)
    progress_bar._close_writers()
    curves, weights = ["bpb", "accuracy", "avg_span", "max_span"], ["layer_weight_0", "layer_weight_2"]
    for split, prefix, names in (("train_inner", "", curves), ("valid", "valid_", curves + weights)):
        last = json_logs(log, split)[-1]
        events = EventAccumulator(str(logs / split))
        events.Reload()
        for name in names:
            event = events.Scalars(name)[-1]
            assert event.step == 20 and f"{prefix}{name}" in last
            if name == "bpb":  # of the others TensorBoard has the last batch's value, the JSON log their average
                assert event.value == pytest.approx(float(last[f"{prefix}{name}"]), abs=1e-3)
