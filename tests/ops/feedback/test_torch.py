"""The torch loop equals the reference loop: outputs, memories, and the gradient of every parameter and input."""

import gc
import math

import pytest
import torch

from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.feedback.torch import passes
from fb_fairseq.ops.feedback.types import Sizes
from fb_fairseq.ops.threads import Buffers
from tests.ops.feedback import spoiled
from tests.ops.feedback.cases import KINDS, Case, compare, feedback_block_torch

LOOPS = {"torch": (feedback_block_torch, False), "recompute": (feedback_block_torch, True)}


def check(case, tolerance=1e-10):
    plain = case.run(feedback_block)
    for loop, recompute in LOOPS.values():
        compare(case.run(loop, recompute), plain, tolerance)


@pytest.fixture(params=[3, 15, 999])
def tile_rows(request, monkeypatch):
    """Tiles of several lengths, whole and partly filled."""
    monkeypatch.setattr(passes, "TILE_ROWS", request.param)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_any_options(kind, seed, tile_rows, empty_is_nan):
    check(Case(seed, **KINDS[kind]))


@pytest.mark.slow
def test_any_options_many(empty_is_nan):
    for seed in range(1000, 1200):
        check(Case(seed, cross=seed % 2 == 0, resets=seed % 3 == 0))


@pytest.mark.parametrize("carried", [0, 1, 6])
@pytest.mark.parametrize("steps,streams", [(1, 2), (11, 1), (2, 3)])
def test_awkward_sizes(steps, streams, carried, empty_is_nan):
    for span in (1, 6, 30):
        check(Case(5, steps, streams, carried, attention_span=span, adaptive_span=False, decoder_attention_heads=1))


def test_single_precision():
    for seed in range(6):
        check(Case(seed, dtype=torch.float32), 2e-5)


@pytest.fixture
def case():
    return Case(2, adaptive_span=False, decoder_layers=2, memory_composition="weighted", memory_projections="shared")


@pytest.mark.parametrize("kind", LOOPS)
def test_two_forwards_before_two_backwards(case, kind):
    loop, recompute = LOOPS[kind]
    other = torch.randn_like(case.x)
    expected = []
    for x in (case.x, other):
        case.clear()
        (case.forward(loop, recompute, x)[0] * case.seed).sum().backward()
        expected.append({name: p.grad.clone() for name, p in case.model.named_parameters()})
    outputs = [case.forward(loop, recompute, x)[0] for x in (case.x, other)]
    for y, gradients in zip(reversed(outputs), reversed(expected)):
        case.clear()
        (y * case.seed).sum().backward()
        compare({name: p.grad for name, p in case.model.named_parameters()}, gradients, 0)


@pytest.mark.parametrize("kind", LOOPS)
def test_forward_twice_and_backward_once_or_twice(case, kind):
    loop, recompute = LOOPS[kind]
    expected = case.run(loop, recompute)
    case.clear()
    case.forward(loop, recompute)
    y = case.forward(loop, recompute)[0]
    (y * case.seed).sum().backward(retain_graph=True)
    compare(case.gradients(), {name: g for name, g in expected.items() if name in case.learned}, 0)
    (y * case.seed).sum().backward()
    for name, gradient in case.gradients().items():
        torch.testing.assert_close(gradient, 2 * expected[name])


@torch.no_grad()
def test_without_gradients():
    case = Case(2, cross=True)
    compare(case.results(feedback_block_torch), case.results(feedback_block), 1e-12)


def test_frozen_parameters_and_a_parameter_used_twice(case):
    """Frozen parameters get no gradient; layers that share a matrix add up their gradients."""
    case.model.layers[0].fc1.weight.requires_grad_(False)
    case.x.requires_grad_(False)
    case.model.layers[1].self_attn.out_proj.weight = case.model.layers[0].self_attn.out_proj.weight
    case.learned = dict(case.model.named_parameters())
    ours, plain = case.run(feedback_block_torch), case.run(feedback_block)
    assert ours["layers.0.fc1.weight"] is None
    compare(ours, plain, 1e-10)


def test_changed_weights_are_noticed(case):
    y = case.forward(feedback_block_torch)[0]
    with torch.no_grad():
        case.model.layers[0].fc1.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_memory_does_not_grow():
    """Over 100 blocks no tensor is left behind, whether there was a backward pass or not."""
    case = Case(1, steps=2, streams=1, decoder_layers=1, memory_composition="weighted")

    def tensors():
        gc.collect()
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())

    case.run(feedback_block_torch)
    before = tensors()
    for i in range(100):
        if i % 2:
            case.run(feedback_block_torch)
        else:
            case.forward(feedback_block_torch)
    gc.disable()  # and without the garbage collector's help
    try:
        case.run(feedback_block_torch)
    finally:
        gc.enable()
    assert tensors() <= before


def test_autocast():
    """In bf16, gradients and outputs are close to those in fp32; sums of residual connections stay fp32."""
    dropouts = dict(attention_dropout=0.0, activation_dropout=0.0, dropout=0.0)
    options = dict(decoder_layers=2, adaptive_span=False, memory_composition="weighted")
    case = Case(3, steps=12, dtype=torch.float32, relative_positions="key-value", **options, **dropouts)
    plain = case.run(feedback_block)
    with torch.autocast("cpu", torch.bfloat16):
        ours = case.run(feedback_block_torch)
    assert ours["output"].dtype == ours["memory"].dtype == torch.float32
    together = [
        torch.cat([g.flatten() for name, g in result.items() if name not in ("output", "memory", "aligned")])
        for result in (ours, plain)
    ]
    for one, other in ((ours["output"], plain["output"]), together):
        assert (one - other).norm() / other.norm() < 0.05


def test_what_is_kept(monkeypatch):
    """With recomputation, little more than keys and values is kept."""
    case = Case(2, steps=20, decoder_layers=3, adaptive_span=False, decoder_ffn_embed_dim=64)
    empty, sizes = Buffers.empty, []
    monkeypatch.setattr(
        Buffers, "empty", lambda self, *shape, dtype: sizes.append(math.prod(shape)) or empty(self, *shape, dtype=dtype)
    )
    kept = {}
    for kind, (loop, recompute) in LOOPS.items():
        sizes.clear()
        case.forward(loop, recompute)
        kept[kind] = sum(sizes)
    assert kept["recompute"] < kept["torch"] / 4


@pytest.mark.parametrize(
    "device,steps,streams,slots,expected",
    [("cpu", 100, 8, 9, 32), ("cpu", 100, 512, 9, 4), ("cuda", 100, 512, 9, 16), ("cuda", 100, 512, 300, 32),
     ("cuda", 100, 8, 300, 32), ("cuda", 100, 4, 9, 64), ("cuda", 10, 4, 9, 10)],
)  # fmt: skip
def test_steps_of_a_tile(device, steps, streams, slots, expected):
    sizes = Sizes(T=steps, B=streams, D=1, L=1, H=1, E=1, F=1, K=1, C=slots, S=slots, I=1)
    assert passes.tile_steps(sizes, torch.device(device)) == expected


@pytest.mark.parametrize("seed", range(12))
def test_nan_and_infinity(seed):
    spoiled.check(Case(seed, steps=5, cross=seed % 3 == 0, resets=seed % 4 == 0), feedback_block_torch, seed)
