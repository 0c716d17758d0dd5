"""fairseq's options for half precision run on the CPU (where fairseq keeps the model itself in fp32), and resume."""

import pytest

from tests.cli.checkpoints import parameters
from tests.cli.fairseq_commands import json_logs, run, train

KINDS = ("amp", "memory_efficient_fp16", "fp16", "bf16", "memory_efficient_bf16")
SPANS = dict(adaptive_span=True, adaptive_span_loss=0.01, adaptive_span_init=0.4, attention_span=20)


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_resumes(byte_data, tmp_path, kind):
    common = dict(disable_validation=True, adaptive_span_ramp=4, **SPANS, **{kind: True})
    log = train(byte_data, tmp_path, max_update=60, **common)
    losses = [float(entry["loss"]) for entry in json_logs(log, "train_inner")]
    assert losses[-1] < losses[0] - 1
    log = train(byte_data, tmp_path, max_update=65, **common)
    assert float(json_logs(log, "train_inner")[-1]["loss"]) < losses[0] - 1
    zs = [z for name, z in parameters(tmp_path / "checkpoint_last.pt").items() if name.endswith("adaptive_span.z")]
    assert all(0 <= z.min() and z.max() <= 1 for z in zs)
    if kind == "fp16":  # without --cpu
        run("validate", byte_data, "--task", "streaming_lm", "--path", tmp_path / "checkpoint_last.pt", "--fp16")
