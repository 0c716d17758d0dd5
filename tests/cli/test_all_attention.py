"""The all-attention model and its optimizer through fairseq's commands."""

import re

import pytest
import torch

from fb_fairseq.commands.plot.command import main as plot
from fb_fairseq.commands.plot.measures import cut_text, persistent_shares, persistent_use
from fb_fairseq.commands.plot.models import load_inputs, load_to_read
from fb_fairseq.modules.options import PERSISTENT_MEMORY_VARIANTS
from tests.cli.checkpoints import eval_lm, loss_by_hand
from tests.cli.fairseq_commands import assert_same_parameters, json_logs, train, train_in_two_processes

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


def test_it_learns_resumes_and_is_evaluated(byte_data, tmp_path, capsys):
    """One loss in validation, evaluation and by hand; a resumed run equals an uninterrupted one bit by bit."""
    log = train(byte_data, tmp_path / "a", max_update=60, **PAPER)
    train(byte_data, tmp_path / "b", max_update=25, disable_validation=True, **PAPER)
    train(byte_data, tmp_path / "b", max_update=60, **PAPER)
    assert_same_parameters(tmp_path / "a/checkpoint_last.pt", tmp_path / "b/checkpoint_last.pt")
    first, last = (float(json_logs(log, "train_inner")[i]["loss"]) for i in (0, -1))
    assert last < first - 1
    bits, _ = loss_by_hand(tmp_path / "a/checkpoint_last.pt", byte_data, "valid", 3)
    assert float(json_logs(log, "valid")[-1]["valid_total_bits"]) == pytest.approx(bits, rel=1e-6)
    cut = dict(gen_subset="valid", valid_streams=3, tokens_per_sample=7)
    out = eval_lm(byte_data, tmp_path / "a/checkpoint_last.pt", **cut)
    assert float(re.search(r"Loss \(base 2\): ([\d.]+)", out).group(1)) == pytest.approx(bits / 400, abs=1e-4)
    path = str(tmp_path / "a/checkpoint_last.pt")
    loaded = load_to_read("--persistent-shares", path, str(byte_data), cpu=True)
    streams = cut_text(load_inputs(loaded, str(byte_data), "valid"), 99, 10)
    shares = persistent_shares(loaded, *streams, block=44)
    assert len(shares.rows) == 2 and all(0 < share < 100 for layer in shares.rows for share in layer)
    for layer, other in zip(shares.rows, persistent_shares(loaded, *streams, block=3).rows):
        assert layer == pytest.approx(other, rel=1e-3), "where blocks are cut changes nothing"
    for layer in persistent_use(loaded, *streams):
        assert len(layer) == 24 and layer[-1] == pytest.approx(1) and sorted(layer) == layer and layer[0] > 1 / 24
    panels = [f"--persistent-{name}={path}" for name in ("shares", "use")] + ["--attention", path]
    panels += ["--context-perplexity", f"A={path}", "--context", "4"]
    capsys.readouterr()
    plot([*panels, "--data", str(byte_data), "--tokens", "100", "--cpu", "--out", str(tmp_path / "shares.png")])
    assert (tmp_path / "shares.png").read_bytes().startswith(b"\x89PNG")
    printed = re.sub(r"\d\.\d{3} ", "X ", capsys.readouterr().out).splitlines()
    assert printed[:5] == ["| context | A |", "|---:|---:|", "| 1 | X |", "| 2 | X |", "| 3 to 4 | X |"]
    with pytest.raises(SystemExit):
        plot(["--persistent-shares", path, "--data", str(byte_data), "--split", "no", "--out", "x.png"])


@pytest.mark.parametrize("variant", PERSISTENT_MEMORY_VARIANTS[1:])
def test_variants_learn(byte_data, tmp_path, variant):
    changes = dict(arch="all_attention_lm", max_update=40, persistent_memory_variant=variant)
    log = train(byte_data, tmp_path, disable_validation=True, **changes)
    first, last = (float(json_logs(log, "train_inner")[i]["loss"]) for i in (0, -1))
    assert last < first - 1


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


@pytest.mark.slow
def test_two_processes(commands, byte_data, tmp_path):
    """They equal ``--update-freq 2``: the clipped gradient is the one of all processes."""
    common = dict(PAPER, max_update=8, disable_validation=True)
    train_in_two_processes(commands, byte_data, tmp_path / "a", **common)
    train(byte_data, tmp_path / "b", update_freq=2, **common)
    assert_same_parameters(tmp_path / "a/checkpoint_last.pt", tmp_path / "b/checkpoint_last.pt")
