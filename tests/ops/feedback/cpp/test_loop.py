"""The C++ loop against the plain one in float64: outputs and every gradient, named."""

import copy
import os

import pytest
import torch

from fb_fairseq.ops.feedback import tile
from fb_fairseq.ops.feedback.cpp.blocks import BlockCalls
from fb_fairseq.ops.feedback.cpp.packing import Packing
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.layers import ACTIVATIONS
from fb_fairseq.ops.log import log_once
from tests.ops.feedback import spoiled
from tests.ops.feedback.cases import KINDS, Case, reference_passes
from tests.ops.feedback.cpp.built import feedback_block_cpp, needs_cpp_loop, single

pytestmark = needs_cpp_loop


def widened(case: Case) -> Case:
    """The same case in float64."""
    wide = copy.copy(case)
    wide.model = copy.deepcopy(case.model).double()
    wide.x = case.x.detach().double().requires_grad_()
    wide.memory = case.memory.double()
    wide.d_out = case.d_out.double()
    wide.learned = dict(wide.model.named_parameters(), input=wide.x)
    if case.encoder:
        wide.cross_layers = copy.deepcopy(case.cross_layers).double()
        wide.keys = case.keys.detach().double().requires_grad_()
        wide.encoder = [
            context._replace(keys_CBHE=wide.keys[0, l], values_CBHE=wide.keys[1, l])
            for l, context in enumerate(case.encoder)
        ]
        wide.learned.update(wide.cross_layers.named_parameters(prefix="cross"), encoder=wide.keys)
    return wide


# Rounding errors of sums with cancellation, in tensors that are small beside the others: one tensor's error may by
# chance be more than twice the reference's, which is then next to nothing. In gradients of a span, a single number,
# the largest relative error over 54 seeds was 9.9e-6 for the reference, and 7.1e-6 for the C++ loop.
ROUNDING = 1e-5
if os.environ.get("FB_FAIRSEQ_CXXFLAGS") or os.environ.get("CXX"):
    ROUNDING *= 4  # other builds add up in another order, some without fused multiply-adds


def errors(found, exact):
    """The absolute error of each result and gradient, and its exact norm, by name."""
    result = {}
    for name, expected in exact.items():
        if expected is None:
            assert found[name] is None or found[name].abs().max() == 0, name
        else:
            result[name] = float((found[name].double() - expected).norm()), float(expected.norm())
    return result


@pytest.fixture(params=[3, 999])
def tile_rows(request, monkeypatch):
    """Tiles of several lengths, whole and partly filled."""
    monkeypatch.setattr(tile, "TILE_ROWS", request.param)


def check(case: Case, recompute: bool = False) -> None:
    """In all no more than twice the reference's error; each result too, or no more than rounding errors."""
    exact = widened(case).run(feedback_block)
    ours = errors(case.run(feedback_block_cpp, recompute), exact)
    plain = errors(case.run(reference_passes, recompute), exact)
    # (A key's bias has no gradient: softmax does not change when all scores grow alike.)
    largest = max(norm for _, norm in ours.values())
    for name, (error, norm) in ours.items():
        assert error <= max(2 * plain[name][0], ROUNDING * max(norm, 0.01 * largest)), (
            name,
            error,
            plain[name],
            norm,
        )
    total, plain_total = (sum(error**2 for error, _ in kind.values()) ** 0.5 for kind in (ours, plain))
    assert total <= max(2 * plain_total, 1e-6 * largest), (total, plain_total, largest)


# Sizes that are no multiple of a vector: see random_options. (A ReLU's sign may flip, which is no error of the loop.)
SMOOTH = ["gelu", "gelu_accurate", "tanh", "linear"]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_plain_twin(kind, seed, recompute, tile_rows, empty_is_nan):
    check(single(seed, activation_fn=SMOOTH[seed % 4], **KINDS[kind]), recompute)


@pytest.mark.on_ci
def test_few_slots_of_a_long_span():
    """Positions are read from the panel of the oldest slot on."""
    options = dict(attention_span=1100, relative_positions="key-value", activation_fn="gelu")
    check(single(3, steps=1100, streams=1, carried=0, decoder_layers=1, **options))


@pytest.mark.parametrize("activation", ["relu", "relu_squared"])
@pytest.mark.parametrize("seed", range(6))
def test_relu(seed, activation, empty_is_nan):
    check(single(seed, activation_fn=activation))


@pytest.mark.parametrize("steps,streams,carried", [(1, 1, 0), (1, 3, 5), (13, 1, 0), (7, 11, 40), (30, 2, 3)])
@pytest.mark.parametrize("threads", [1, 3])
def test_awkward_sizes(steps, streams, carried, threads, tile_rows, empty_is_nan, torch_threads):
    torch.set_num_threads(threads)
    for span in (1, 6, 35):
        options = dict(attention_span=span, relative_positions="key-value", activation_fn="gelu")
        check(single(5, steps=steps, streams=streams, carried=carried, **options))


@pytest.mark.parametrize(
    "width,heads,head_dim,ffn", [(33, 1, 37, 65), (64, 2, 32, 128), (48, 3, 16, 31), (70, 1, 129, 9)]
)
def test_widths(width, heads, head_dim, ffn, empty_is_nan):
    sizes = dict(decoder_embed_dim=width, decoder_attention_heads=heads, decoder_head_dim=head_dim)
    check(single(3, streams=9, carried=5, decoder_ffn_embed_dim=ffn, activation_fn="gelu", **sizes))


# What takes the most scratch memory, and sizes at which it does.
SCRATCH = {
    "attention": dict(attention_span=40),
    "attention to the encoder": dict(cross=True, sources=200),
    "hidden layer": dict(decoder_ffn_embed_dim=200),
    "keys and values": dict(steps=2, decoder_layers=1, decoder_head_dim=30),
    "gradient of memories": dict(steps=2, decoder_layers=1, decoder_embed_dim=100, decoder_normalize_before=False),
    "gradient of attention": dict(steps=2, decoder_layers=1, attention_span=5),
    "gradient of earlier keys and values": dict(steps=30),
}


@pytest.mark.parametrize("user", SCRATCH)
def test_scratch_memory_is_large_enough(user, monkeypatch):
    """Nothing is written behind a buffer."""
    behind, empty = [], Packing.empty

    def guarded(self, size):
        buffer = empty(self, size + 10_000)
        behind.append(buffer[size:].fill_(7.0))
        return buffer[:size]

    monkeypatch.setattr(Packing, "empty", guarded)
    sizes = dict(decoder_embed_dim=8, decoder_ffn_embed_dim=8, decoder_attention_heads=2, decoder_head_dim=4)
    shape = dict(streams=1, carried=50, decoder_layers=3, attention_span=2)
    options = dict(activation_fn="gelu", attention_dropout=0.2, activation_dropout=0.2)
    kinds = dict(relative_positions="key-value", memory_composition="weighted", memory_projections="shared")
    single(1, **{**sizes, **shape, **options, **kinds, **SCRATCH[user]}).run(feedback_block_cpp)
    assert behind and all((buffer == 7).all() for buffer in behind)


def test_it_ran(monkeypatch):
    """Not the reference in its place."""
    ran, run = [], BlockCalls.forward
    monkeypatch.setattr(BlockCalls, "forward", lambda *arguments: ran.append(1) or run(*arguments))
    single(1).run(feedback_block_cpp)
    assert ran == [True]


def test_what_it_does_not_cover_runs_in_the_reference(caplog):
    log_once.cache_clear()
    case = Case(1, dtype=torch.float64)
    plain = case.run(reference_passes)
    ours = case.run(feedback_block_cpp)
    for name, expected in plain.items():
        assert expected is None or ours[name].equal(expected), name
    assert caplog.text.count("not in float64; the reference runs") == 1


def test_embeddings_that_are_a_transpose(empty_is_nan):
    """As the language models give them, whose batches are [B, T, D]."""
    case = single(2, activation_fn="tanh")
    case.x = case.learned["input"] = case.x.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    assert not case.x.is_contiguous()
    check(case)


@pytest.mark.not_fast
def test_no_leak():
    """300 blocks, with steps of decoding between them, need no more memory than the first ones."""
    case = single(4, steps=3, activation_fn="tanh", dropout=0.0)
    rss = []
    for block in range(300):
        case.run(feedback_block_cpp)
        with torch.no_grad():
            ring = case.model.new_ring()
            for x_BD in case.x:
                case.model.run_step(x_BD, ring)
            ring.reorder(torch.tensor([0, 0, 2]))
        if block in (100, 299):
            rss.append(resident_bytes())
    assert rss[1] - rss[0] < 1 << 20, rss


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("seed", range(40))
def test_nan_and_infinity(seed):
    case = single(seed, steps=5, cross=seed % 3 == 0, resets=seed % 4 == 0, activation_fn=list(ACTIVATIONS)[seed % 6])
    spoiled.check(case, feedback_block_cpp, seed, recompute=seed % 2 == 1)


def test_an_encoder_of_padding_alone():
    """Attention over it is not a number, as torch's."""
    case = single(3, cross=True, carried=3)
    case.encoder[0].padding_BC[1] = True
    ours, expected = (case.forward(loop)[0] for loop in (feedback_block_cpp, feedback_block))
    assert ours.isnan().equal(expected.isnan()) and ours[:, 1].isnan().all() and ours[:, 0].isfinite().all()
