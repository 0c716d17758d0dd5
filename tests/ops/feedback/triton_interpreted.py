"""The Triton loop's kernels in Triton's interpreter, against the reference loop (``test_triton.py`` runs this file).

``ALL_CASES=1`` adds cases that take long, and whose options others have, too.
"""

import copy
import os
from collections import Counter
from functools import partial

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.ops import capturing
from fb_fairseq.ops.feedback import ring
from fb_fairseq.ops.feedback.cuda_graphs import steps
from fb_fairseq.ops.feedback.cuda_graphs.stepper import StepGraphs
from fb_fairseq.ops.feedback.loops import GRAPHS, run_block
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.feedback.stepper import Stepper
from fb_fairseq.ops.feedback.triton import activations, launches
from fb_fairseq.ops.feedback.triton import steps as triton_steps
from fb_fairseq.ops.feedback.triton.tiles import Gpu
from fb_fairseq.ops.layers import ACTIVATIONS
from tests.modules.encoder_steps import compare_decoding_with_an_encoder
from tests.modules.options import random_stack
from tests.ops.feedback import spoiled
from tests.ops.feedback.cases import Case, block_of, compare, compare_norms

SPLIT_SPAN = 70  # slots that several programs share
ALL_CASES = bool(os.environ.get("ALL_CASES"))


def cases(few, more):
    """All of them where that is asked for."""
    return [*few, *(more if ALL_CASES else [])]


@pytest.fixture(autouse=True)
def kernels_on_a_cpu(monkeypatch):
    monkeypatch.setattr(capturing, "KERNEL_DEVICES", ("cpu",))


@pytest.fixture
def loop():
    """The kernels, without the comparison with torch's operations."""
    return block_of("triton")


def case_of(seed, **changes):
    """A case of three steps unless ``changes`` say otherwise; with an encoder or episodes, by the seed."""
    return Case(seed, **{"steps": 3, "cross": seed % 3 == 0, "resets": seed % 4 == 0, **changes})


@pytest.mark.parametrize("seed", cases([0, 1, 3, 7, 8], [2, 4, 5, 6, 9, 10]))
def test_outputs_and_every_gradient(seed, loop, empty_is_nan):
    """Norms, activations, compositions, projections, positions, spans, dropout, encoders, episodes."""
    case = case_of(seed)
    compare(case.run(loop), case.run(feedback_block), 1e-10)


def test_layers_that_attend_to_their_own_outputs(loop, empty_is_nan):
    case = case_of(1, streams=2, memory_composition="same", decoder_layers=2)
    compare(case.run(loop), case.run(feedback_block), 1e-10)


def test_many_steps(loop, empty_is_nan, monkeypatch):
    """Own slots get gradients from their tile's steps and from later tiles."""
    monkeypatch.setattr("fb_fairseq.ops.feedback.tile.TILE_ROWS", 1)
    monkeypatch.setattr("fb_fairseq.ops.feedback.tile.MIN_TILE_STEPS", 3)
    case = case_of(1, steps=5, streams=2, decoder_layers=2)
    compare(case.run(loop, recompute=True), case.run(feedback_block), 1e-10)


def test_slots_that_programs_share(loop, empty_is_nan):
    sizes = dict(decoder_layers=1, steps=2, streams=2)
    case = case_of(5, attention_span=SPLIT_SPAN, carried=SPLIT_SPAN - 1, adaptive_span=False, **sizes)
    assert launches.attention_tile(case.options.decoder_attention_heads * 2, SPLIT_SPAN, 8, 8, Gpu()).splits > 1
    compare(case.run(loop), case.run(feedback_block), 1e-10)


@torch.no_grad()
def test_an_encoder_of_padding_alone(loop):
    """Not a number, as torch's, also where one of four programs has no source positions."""
    sizes = dict(decoder_layers=1, steps=1, streams=2, sources=65)
    case = case_of(5, attention_span=128, carried=127, adaptive_span=False, cross=True, **sizes)
    case.encoder[0].padding_BC[1] = True
    ours, expected = (case.forward(run)[0] for run in (loop, feedback_block))
    assert ours.isnan().equal(expected.isnan()) and ours[:, 1].isnan().all() and ours[:, 0].isfinite().all()


@triton.jit
def activation_and_derivative(x, y, slope, KIND: tl.constexpr):
    """Of 16 numbers."""
    at = tl.arange(0, 16)
    recorded = tl.load(x + at)
    tl.store(y + at, activations.activation(recorded, KIND))
    tl.store(slope + at, activations.derivative(recorded, KIND))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_each_activation(name):
    """Against torch's, and its gradient. (Of a ReLU, its result is recorded.)"""
    x = torch.linspace(-4, 3.5, 16, dtype=torch.double, requires_grad=True)
    expected = ACTIVATIONS[name](x)
    (gradient,) = torch.autograd.grad(expected.sum(), x)
    recorded = expected.detach() if name == "relu" else x.detach()
    y, slope = torch.empty_like(recorded), torch.empty_like(recorded)
    activation_and_derivative[(1,)](recorded, y, slope, activations.NUMBERS[name])
    torch.testing.assert_close(y, expected.detach())
    torch.testing.assert_close(slope, gradient)


@pytest.mark.parametrize("activation", cases(["gelu"], [name for name in ACTIVATIONS if name != "gelu"]))
def test_activations(activation, loop):
    case = case_of(4, activation_fn=activation, decoder_layers=1, steps=2, adaptive_span=False)
    compare(case.run(loop), case.run(feedback_block), 1e-10)


def test_more_rows_than_a_tile(loop):
    case = case_of(1, streams=19, steps=2, carried=1, decoder_layers=1)
    compare(case.run(loop), case.run(feedback_block), 1e-10)


def test_half_precision(loop):
    """(Triton's interpreter cannot multiply matrices of bf16.)"""
    changes = dict(steps=2, streams=2, decoder_layers=2, memory_composition="weighted")
    case = case_of(3, **changes)
    plain = case.run(feedback_block)
    case.model.half()
    case.cross_layers.half()
    single = case_of(3, dtype=torch.float16, **changes)
    with torch.no_grad():
        for name, x in case.learned.items():
            single.learned[name].copy_(x)
        single.memory.copy_(case.memory)
        single.d_out.copy_(case.d_out)
    single.dropouts, single.age_TB = case.dropouts, case.age_TB
    compare_norms(single.run(loop), plain, 3e-2)


@pytest.mark.parametrize("seed", cases([2], [0, 4]))
def test_nan_and_infinity(seed, loop):
    spoiled.check(case_of(seed, activation_fn="relu"), loop, seed)


def test_launches(loop, monkeypatch):
    """Kernels per layer and step, and around the layers, of both passes. A change that needs more has to say why."""

    counts = Counter()
    count = lambda kernel, *_, **__: counts.update([kernel.fn.__name__])  # noqa: E731  (nothing is computed)
    monkeypatch.setattr(InterpretedFunction, "run", count)

    def launched(layers, steps):
        counts.clear()
        case = case_of(
            4,
            resets=False,
            decoder_layers=layers,
            steps=steps,
            adaptive_span=False,
            memory_projections="shared",
            memory_composition="weighted",
            decoder_normalize_before=True,
            dropout=0.0,
        )
        case.run(loop)
        return sum(counts.values())

    per_layer = (launched(3, 3) - launched(2, 3)) - (launched(3, 2) - launched(2, 2))
    around = launched(2, 3) - launched(2, 2) - 2 * per_layer
    assert (per_layer, around) == (10, 2)
    assert {"attend", "attend_backward", "own_slot", "remember"} <= set(counts)


# Decoding steps.


class RepeatedStep:
    """In place of a graph: calls the captured step itself."""

    def __init__(self, function):
        self.function = function

    def replay(self):
        self.result = self.function()


@pytest.fixture
def captured(monkeypatch, caplog):
    """Steps on a CPU are captured, and those that run with the kernels counted. No kernel may fail, in whose place
    torch's operations would run."""
    ran, run = [], triton_steps.run_step
    monkeypatch.setattr(triton_steps, "run_step", lambda *arguments: ran.append(1) or run(*arguments))
    monkeypatch.setattr(capturing, "GRAPH_DEVICES", ("cpu",))
    monkeypatch.setattr(steps, "CudaGraph", RepeatedStep)
    monkeypatch.setattr(ring, "FIRST_SLOTS", 2)
    monkeypatch.setattr(StepGraphs, "capture_at", 2)
    yield ran
    assert ran and not [record.getMessage() for record in caplog.get_records("call")]


def build(seed, **changes):
    """A stack in evaluation and double precision whose steps run by --step-loop triton."""
    return random_stack(FeedbackTransformer, seed, step_loop="triton", attention_span=5, **changes).double().eval()


def plain_copy(model):
    """The same model with --step-loop reference."""
    other = copy.deepcopy(model)
    other.stepper = Stepper("reference")
    return other


@torch.no_grad()
@pytest.mark.parametrize("seed", cases([4], [0, 1, 2, 3]))
def test_decoding(seed, captured):
    """Rings that grow, and that are full and overwrite their slots; reordered streams."""
    model = build(seed)
    plain = plain_copy(model)
    x_TBD = torch.randn(10, 3, model.options.decoder_embed_dim, dtype=torch.double)
    memory = model.new_ring()
    history = x_TBD[:0]
    for t, x_BD in enumerate(x_TBD):
        if t == 8:
            order = torch.tensor([2, 0, 0])
            memory.reorder(order)
            history = history[:, order]
        history = torch.cat([history, x_BD[None]])
        y_BD = model.run_step(x_BD, memory)
        torch.testing.assert_close(y_BD, plain(history)[0][-1], atol=1e-10, rtol=1e-10)
    assert len(captured) >= 5


@torch.no_grad()
def test_episodes_in_decoding(captured):
    model = build(1)
    x_TBD = torch.randn(7, 3, model.options.decoder_embed_dim, dtype=torch.double)
    age_TB = torch.stack([torch.arange(7), torch.arange(7) % 4, torch.arange(7) % 3], 1)
    memory = model.new_ring()
    ours = []
    for x_BD, age_B in zip(x_TBD, age_TB):
        memory.reset(age_B)
        ours.append(model.run_step(x_BD, memory))
    expected = plain_copy(model).run_block(x_TBD, None, age_TB)[0]
    torch.testing.assert_close(torch.stack(ours), expected, atol=1e-10, rtol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("seed,hypotheses", cases([(4, 2)], [(1, 1), (1, 2), (4, 1)]))
def test_decoding_with_an_encoder(seed, hypotheses, captured):
    case = Case(seed, steps=1, cross=True, dropout=0.0, step_loop="triton")
    compare_decoding_with_an_encoder(case, hypotheses, 1e-10)


# The comparison with torch's operations, which comes first.


def test_the_kernels_are_right(monkeypatch, caplog):
    """In a setting that comes for the first time, and named where they are not."""
    capturing.log_once.cache_clear()
    monkeypatch.setattr(GRAPHS, "problems", {})
    case = case_of(1, steps=2, streams=2, decoder_layers=1)
    compare(case.run(partial(run_block, "triton")), case.run(feedback_block), 1e-10)
    assert list(GRAPHS.problems.values()) == [None]
    monkeypatch.setattr(GRAPHS, "problems", {})
    monkeypatch.setattr("fb_fairseq.ops.feedback.triton.forward.NUMBERS", dict.fromkeys(ACTIVATIONS, 4))
    other = case_of(1, steps=2, streams=2, decoder_layers=1, activation_fn="gelu")
    compare(other.run(partial(run_block, "triton")), other.run(feedback_block), 1e-10)
    assert "--step-loop triton: its results differ by" in caplog.text and None not in GRAPHS.problems.values()
