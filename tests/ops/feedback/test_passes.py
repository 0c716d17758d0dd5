"""The reference in one node of autograd: outputs, memories, and the gradient of every parameter and input."""

import gc

import pytest
import torch

from fb_fairseq.ops.feedback import tile
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.feedback.types import Sizes, block_sizes
from fb_fairseq.ops.feedback.weights import compute_weights
from tests.ops.feedback.cases import KINDS, Case, compare, reference_passes


def test_types_of_weights():
    """Norms keep theirs, and the mix that of the representations."""
    case = Case(1, dtype=torch.float32, memory_composition="weighted", decoder_normalize_before=True)
    found = compute_weights(case.weights(), 5, torch.bfloat16, torch.float32)
    layer = found.layers[0]
    assert {layer.query.weight.dtype, layer.fc2.bias.dtype, found.key_values[0].weight.dtype} == {torch.bfloat16}
    assert {layer.attn_norm.weight.dtype, layer.ffn_norm.bias.dtype, found.mix_KA.dtype} == {torch.float32}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_any_options(kind, seed):
    case = Case(seed, **KINDS[kind])
    plain = case.run(feedback_block)
    for recompute in (False, True):
        compare(case.run(reference_passes, recompute), plain, 1e-10)


@pytest.fixture
def case():
    return Case(2, adaptive_span=False, decoder_layers=2, memory_composition="weighted", memory_projections="shared")


@pytest.mark.parametrize("recompute", [False, True])
def test_forward_twice_and_backward_once_or_twice(case, recompute):
    expected = case.run(reference_passes, recompute)
    case.clear()
    case.forward(reference_passes, recompute)
    y = case.forward(reference_passes, recompute)[0]
    (y * case.d_out).sum().backward(retain_graph=True)
    compare(case.gradients(), {name: g for name, g in expected.items() if name in case.learned}, 0)
    (y * case.d_out).sum().backward()
    for name, gradient in case.gradients().items():
        torch.testing.assert_close(gradient, 2 * expected[name])


def test_frozen_parameters_and_a_parameter_used_twice(case):
    """Frozen parameters get no gradient; layers that share a matrix add up their gradients."""
    case.model.layers[0].fc1.weight.requires_grad_(False)
    case.x.requires_grad_(False)
    case.model.layers[1].self_attn.out_proj.weight = case.model.layers[0].self_attn.out_proj.weight
    case.learned = dict(case.model.named_parameters())
    ours = case.run(reference_passes)
    plain = case.run(feedback_block)
    assert ours["layers.0.fc1.weight"] is None
    compare(ours, plain, 1e-10)


def test_changed_weights_are_noticed(case):
    y = case.forward(reference_passes)[0]
    with torch.no_grad():
        case.model.layers[0].fc1.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_memory_does_not_grow():
    """Over 100 blocks no tensor is left behind, whether there was a backward pass or not, and nothing is collected."""
    case = Case(1, steps=2, streams=1, decoder_layers=1, memory_composition="weighted")

    def tensors():
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())

    case.run(reference_passes)
    gc.collect()
    gc.disable()
    try:
        before = tensors()
        for i in range(100):
            if i % 2:
                case.run(reference_passes)
            else:
                case.forward(reference_passes)
        assert tensors() <= before
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "device,steps,streams,slots,expected",
    [("cpu", 100, 8, 9, 32), ("cpu", 100, 512, 9, 4), ("cuda", 100, 512, 9, 16), ("cuda", 100, 512, 300, 32),
     ("cuda", 100, 8, 300, 32), ("cuda", 100, 4, 9, 64), ("cuda", 10, 4, 9, 10)],
)  # fmt: skip
def test_steps_of_a_tile(device, steps, streams, slots, expected):
    sizes = Sizes(T=steps, B=streams, D=1, L=1, H=1, E=1, F=1, K=1, C=slots, S=slots, I=1)
    assert tile.tile_steps(sizes, torch.device(device)) == expected


@pytest.mark.parametrize("steps,carried,span,slots", [(4, 2, 20, 5), (4, 2, 5, 5), (4, 2, 3, 3), (1, 0, 20, 1)])
def test_a_block_has_no_more_slots_than_steps_are_seen(steps, carried, span, slots):
    found = []
    case = Case(1, steps=steps, carried=carried, attention_span=span, adaptive_span=False)
    case.forward(lambda inputs: found.append(block_sizes(inputs)))
    assert (found[0].T, found[0].C, found[0].S) == (steps, carried, slots)
