"""Checkpoints of an earlier version load, compute and train on as they did then; see ``tests/golden/recipe.py``."""

import argparse

import fairseq
import pytest
import torch

from fb_fairseq.trained_model import LEFT_OUT
from tests.cli.checkpoints import load, parameters
from tests.golden import recipe


@pytest.mark.parametrize("case", [*recipe.LANGUAGE_MODELS, *recipe.TRANSLATION])
def test_golden(case, byte_data, parallel_data, tmp_path):
    """The same logits, losses, continuations; and the same parameters after one more update with the stream memory."""
    data = parallel_data if case in recipe.TRANSLATION else byte_data
    files = recipe.unpack(case, tmp_path / "golden")
    recipe.copy_checkpoint(files, tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    expected = torch.load(files / "expected.pt", weights_only=True)
    found = recipe.measure(case, checkpoint, data, tmp_path)
    # Another processor adds up in another order.
    torch.testing.assert_close(found["logits"], expected["logits"], rtol=1e-4, atol=1e-5)
    assert found["loss"] == pytest.approx(expected["loss"], abs=2e-4)
    assert found["greedy"] == expected["greedy"]
    assert found["beam"] == expected["beam"]
    if case in recipe.TRANSLATION and not fairseq.__version__.startswith("0.12.2"):
        return  # the optimizer's state has the copies of parameters that only fairseq 0.12.2's encoder layers keep
    log = recipe.train(case, data, tmp_path / "run", recipe.UPDATES + 1)
    assert "Loaded checkpoint" in log and "no memory of the streams" not in log
    own = parameters(checkpoint)
    resumed = torch.load(files / "resumed.pt", weights_only=True)
    before = parameters(files / "checkpoint_last.pt")
    assert own.keys() == resumed.keys()
    assert any(not own[name].equal(before[name]) for name in own), "the update changed something"
    for name in own:
        # fairseq leaves the former uninitialised. A key's bias has no gradient, because softmax does not change when
        # all scores grow alike: what Adam moves it by are rounding errors.
        if LEFT_OUT.match(name) or name.endswith("k_proj.bias"):
            continue
        torch.testing.assert_close(own[name], resumed[name], rtol=1e-4, atol=1e-5, msg=f"{name}: {{}}".format)


@pytest.mark.parametrize("case", ["feedback", "decoder"])
def test_options_of_earlier_versions(case, byte_data, parallel_data, tmp_path):
    """A loop's former name is read as its new one, and an option that is gone is ignored."""
    data = parallel_data if case in recipe.TRANSLATION else byte_data
    files = recipe.unpack(case, tmp_path / "golden")
    state = torch.load(files / "checkpoint_last.pt", weights_only=False)
    options = state["cfg"]["model"]
    options = vars(options) if isinstance(options, argparse.Namespace) else options
    options.update(step_loop="fused", step_loop_kernel="triton")
    torch.save(state, tmp_path / "old.pt")
    model, _ = load(tmp_path / "old.pt", data)
    assert model.decoder.stack.stepper.name == "triton"
