"""The models of state tracking: equal parameters, heads, decoding step by step, the sLSTM by hand."""

from dataclasses import replace

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.papers.state_tracking.architectures import (
    ARCHITECTURES,
    Shape,
    eighths,
    fitted_inner,
    multiples,
    of_transformers,
    parameters,
)
from fb_fairseq.papers.state_tracking.bodies import Tagger
from fb_fairseq.papers.state_tracking.cells import SLSTM


def needs(name):
    """Skip models of a package that is missing: tests/run.sh --without-fairseq does not always install transformers."""
    if name not in ("feedback", "transformer", "lstm", "slstm"):
        pytest.importorskip("transformers")


# The inner size with which layers have about as many parameters as the Transformer's, and that number.
SIZES = {
    "feedback": (288, 100_419),
    "transformer": (256, 100_352),
    "lstm": (80, 98_560),
    "mamba": (192, 98_112),
    "mamba2": (192, 94_692),
    "rwkv": (224, 99_968),
    "xlstm": (152, 100_296),
    "gated_deltanet": (152, 101_768),
    "gated_deltanet_negative": (152, 101_768),
    "slstm": (160, 100_160),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_models(name):
    """Equal parameters; a step depends on no later one; and decoding step by step gives the same."""
    needs(name)
    shape = Shape(layers=2, width=64, heads=2, inner=256, span=8)
    wanted = parameters(ARCHITECTURES["transformer"].build(shape))
    inner = fitted_inner(ARCHITECTURES[name], shape, wanted)
    body = ARCHITECTURES[name].build(replace(shape, inner=inner))
    assert abs(parameters(body) - wanted) < 0.07 * wanted and (inner, parameters(body)) == SIZES[name]
    if name in ("feedback", "transformer"):
        assert body.stack.options.decoder_normalize_before
    model = Tagger(body, 6, 6, 64).eval()
    inputs = torch.randint(6, (1, 20))
    with torch.no_grad():
        logits = model(inputs)
        changed = model(torch.cat([inputs[:, :10], (inputs[:, 10:] + 1) % 6], 1))
        torch.testing.assert_close(logits[:, :10], changed[:, :10], atol=1e-5, rtol=1e-5)
        assert (logits[:, 10:] - changed[:, 10:]).abs().max() > 1e-3
        torch.testing.assert_close(model.decode(inputs), logits, atol=1e-4, rtol=1e-4)


def test_inner_sizes():
    assert list(eighths(2)) == [8, 16] and list(multiples(3)) == [3, 6, 9, 12, 15, 18, 21, 24]


@pytest.mark.parametrize("name", ["xlstm", "gated_deltanet"])
def test_heads(name):
    """Whatever has heads has as many as are asked for."""
    pytest.importorskip("transformers")
    shape = Shape(layers=1, width=192, heads=3, inner=192, span=8)
    config = ARCHITECTURES[name].build(shape).model.config.to_dict()
    found = {option: value for option, value in config.items() if option.endswith("heads")}
    assert found and set(found.values()) == {3}


def test_the_first_step_of_slstm():
    """From a state of zeros, the normaliser takes away the input gate."""
    layer, x_BLD = SLSTM(8, 2), torch.randn(3, 1, 8)
    candidate, _, _, output_gate = layer.inputs(x_BLD[:, 0]).view(3, 2, 4, 4).unbind(-1)
    expected = layer.out(layer.norm(output_gate.sigmoid() * candidate.tanh()).flatten(1))
    torch.testing.assert_close(layer(x_BLD, None)[0][:, 0], expected)


def test_initial_weights_of_slstm():
    """Of the output before: as large as keeps its size; and forget gates begin open."""
    layer = SLSTM(64, 4)
    assert layer.recurrent.std().item() == pytest.approx(0.25, rel=0.1)
    assert (layer.inputs.bias.view(4, 16, 4)[..., 2] == 3).all()


def test_a_model_that_an_old_version_does_not_have():
    pytest.importorskip("transformers")
    with pytest.raises(UserError, match="^Nosuch: .* pip install -U .*, or leave the model out"):
        of_transformers("Nosuch", "state", dict)(Shape(2, 8, 2, 8, 8))
