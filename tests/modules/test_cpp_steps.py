"""Decoding steps in C++ compute what a block computes, with the weights as they are."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fb_fairseq.modules import FeedbackTransformer, RelativeTransformer, StreamState
from fb_fairseq.ops.feedback.cpp.steps import CppStep
from fb_fairseq.ops.feedback.stepper import Stepper
from tests.modules.encoder_steps import compare_decoding_with_an_encoder
from tests.modules.options import random_stack
from tests.ops.feedback import spoiled
from tests.ops.feedback.cases import Case
from tests.ops.feedback.cpp.built import needs_cpp_loop

pytestmark = needs_cpp_loop


@pytest.fixture
def cpp_steps(monkeypatch):
    """The numbers of streams of the steps that ran in C++."""
    ran, run = [], CppStep.run
    monkeypatch.setattr(CppStep, "run", lambda self, given: ran.append(len(given.x_BD)) or run(self, given))
    return ran


def build(seed, stack=FeedbackTransformer, **changes):
    return random_stack(stack, seed, **changes).eval()


def steps_of(model, x_TBD, ring):
    """Features [T, B, D], one step after the other."""
    return torch.stack([model.run_step(x_BD, ring) for x_BD in x_TBD])


def exact(model, x_TBD, state=None, age_TB=None):
    """Features of a block by the plain loop in float64."""
    wide = copy.deepcopy(model).double()
    wide.stepper = Stepper("reference")
    state = state and StreamState(state.memory_KCBD.double())
    return wide.run_block(x_TBD.double(), state, age_TB)[0]


def assert_close(ours, expected):
    torch.testing.assert_close(ours.double(), expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("stack", [FeedbackTransformer, RelativeTransformer])
@pytest.mark.parametrize("seed", range(12))
@torch.no_grad()
def test_equals_a_block(seed, stack, threads, cpp_steps, monkeypatch, torch_threads):
    """Rings that grow, and that are full and overwrite their slots; from the first step on, or after a block."""
    monkeypatch.setattr("fb_fairseq.ops.feedback.ring.FIRST_SLOTS", 2)
    monkeypatch.setattr("fb_fairseq.ops.feedback.cpp.step_call.WORTH_THREADS", 1)
    torch.set_num_threads(threads)
    model = build(seed, stack)
    x_TBD = torch.randn(20, 5, model.options.decoder_embed_dim)
    first = 9 * (seed % 2)
    ring = model.ring_after(model.run_block(x_TBD[:first])[1]) if first else model.new_ring()
    ours = steps_of(model, x_TBD[first:], ring)
    assert cpp_steps == [5] * (20 - first)
    assert_close(ours, exact(model, x_TBD)[first:])


@torch.no_grad()
def test_episodes(cpp_steps):
    model = build(1, attention_span=6)
    x_TBD = torch.randn(12, 3, model.options.decoder_embed_dim)
    age_TB = torch.stack([torch.arange(12), torch.arange(12) % 5, torch.arange(12) % 3], 1)
    ring, ours = model.new_ring(), []
    for x_BD, age_B in zip(x_TBD, age_TB):
        ring.reset(age_B)
        ours.append(model.run_step(x_BD, ring))
    assert len(cpp_steps) == 12
    assert_close(torch.stack(ours), exact(model, x_TBD, age_TB=age_TB))


@pytest.mark.parametrize("number", [1, 5])
@torch.no_grad()
def test_ages_of_another_number_of_streams(number):
    """Loops would read beyond them."""
    model = build(1)
    x_TBD = torch.randn(2, 3, model.options.decoder_embed_dim)
    with pytest.raises(ValueError, match="age_TB: of shape "):
        model.run_block(x_TBD, None, torch.zeros(2, number, dtype=torch.long))
    for ring in (model.new_ring(), model.ring_after(model.run_block(x_TBD)[1])):
        ring.reset(torch.zeros(number, dtype=torch.long))
        with pytest.raises(ValueError, match=f"a step of 3 rows; the memory has the ages of {number} streams"):
            model.run_step(x_TBD[0], ring)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("seed", range(6))
@torch.no_grad()
def test_reordered_streams(seed, threads, cpp_steps, monkeypatch, torch_threads):
    """As in beam search: hypotheses are taken more than once, others not at all; streams leave; the ring overwrites."""
    monkeypatch.setattr("fb_fairseq.ops.feedback.ring.FIRST_SLOTS", 2)
    monkeypatch.setattr("fb_fairseq.ops.feedback.cpp.step_call.WORTH_THREADS", 1)
    torch.set_num_threads(threads)
    model = build(seed, attention_span=5)
    history = torch.empty(0, 4, model.options.decoder_embed_dim)
    ring = model.new_ring()
    for t in range(16):
        if t > 1:
            streams = 4
            if t >= 8:
                streams = 3 if t < 13 else 5
            order = torch.randint(history.shape[1], (streams,))
            ring.reorder(order)
            history = history[:, order]
        history = torch.cat([history, torch.randn(1, *history.shape[1:])])
        assert_close(model.run_step(history[-1], ring), exact(model, history)[-1])
    assert len(cpp_steps) == 16


@torch.no_grad()
def test_a_step_of_another_kind_after_reordering(cpp_steps):
    model = build(3, attention_span=6)
    x_TBD = torch.randn(5, 4, model.options.decoder_embed_dim)
    order = torch.tensor([2, 2, 0, 1])
    ring = model.new_ring()
    steps_of(model, x_TBD[:4], ring)
    ring.reorder(order)
    with torch.enable_grad():
        ours = model.run_step(x_TBD[4], ring)
    assert len(cpp_steps) == 4
    assert_close(ours, exact(model, torch.cat([x_TBD[:4, order], x_TBD[4:]]))[-1])


CHANGES = {
    "load_state_dict": lambda model: model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()}),
    "new parameter": lambda model: setattr(
        model.layers[0].fc1, "weight", torch.nn.Parameter(model.layers[0].fc1.weight * 2)
    ),
    "assigned data": lambda model: setattr(model.layers[0].fc1.weight, "data", model.layers[0].fc1.weight * 2),
    "moved": lambda model: model.double().float() and model.layers[0].fc1.weight.data.mul_(2),
}


@pytest.mark.parametrize("change", CHANGES)
def test_new_weights_are_packed(change, cpp_steps):
    model = build(2)
    x_TBD = torch.randn(3, 2, model.options.decoder_embed_dim)
    with torch.no_grad():
        steps_of(model, x_TBD, model.new_ring())
        packed = model.stepper.kept["cpp"]["step"]
        steps_of(model, x_TBD, model.new_ring())
        assert model.stepper.kept["cpp"]["step"] is packed  # kept where nothing changes
        CHANGES[change](model)
        assert_close(steps_of(model, x_TBD, model.new_ring()), exact(model, x_TBD))
    assert len(cpp_steps) == 9


@torch.no_grad()
def test_a_change_between_steps_of_a_ring(cpp_steps):
    model = build(2)
    x_BD = torch.randn(2, model.options.decoder_embed_dim)
    ring = model.new_ring()
    model.run_step(x_BD, ring)
    model.layers[-1].fc2.weight.add_(0.5)
    wide = copy.deepcopy(model).double()
    expected_ring = wide.new_ring()
    expected_ring.buffer, expected_ring.position = ring.buffer.double(), 1
    assert_close(model.run_step(x_BD, ring), wide.run_step(x_BD.double(), expected_ring))
    assert len(cpp_steps) == 2


@torch.no_grad()
def test_what_other_loops_and_storages_run(cpp_steps):
    model = build(2, step_loop="reference")
    model.run_step(torch.randn(2, model.options.decoder_embed_dim), model.new_ring())
    model = build(2)
    model.run_step(torch.randn(2, model.options.decoder_embed_dim), model.new_ring("vectors"))
    assert cpp_steps == []


@pytest.mark.parametrize("hypotheses", [1, 3])
@pytest.mark.parametrize("seed", range(6))
@torch.no_grad()
def test_attention_to_an_encoder(seed, hypotheses, cpp_steps, empty_is_nan):
    case = Case(seed, steps=1, cross=True, dtype=torch.float32, dropout=0.0)
    compare_decoding_with_an_encoder(case, hypotheses, 2e-5)
    assert len(cpp_steps) == 4


@torch.no_grad()
def test_wrong_numbers_of_rows():
    model = build(2)
    ring = model.new_ring()
    x_BD = torch.randn(4, model.options.decoder_embed_dim)
    model.run_step(x_BD, ring)
    with pytest.raises(ValueError, match="3 rows; the memory has 4 streams"):
        model.run_step(x_BD[:3], ring)
    ring.reorder(torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="4 rows; the memory has 2 streams"):
        model.run_step(x_BD, ring)
    model.run_step(x_BD[:2], ring)


@torch.no_grad()
def test_parameters_of_two_types(cpp_steps):
    """The C++ loop would read them all as fp32."""
    model = build(2)
    model.layers[0].fc1.double()
    with pytest.raises(RuntimeError, match="dtype"):
        model.run_step(torch.randn(4, model.options.decoder_embed_dim), model.new_ring())
    assert cpp_steps == []


@torch.no_grad()
def test_after_steps_in_another_type(cpp_steps):
    model = build(2)
    ring = model.new_ring()
    x_BD = torch.randn(4, model.options.decoder_embed_dim)
    model.double().run_step(x_BD.double(), ring)
    model.float()
    assert_close(model.run_step(x_BD, ring), exact(model, torch.stack([x_BD, x_BD]))[1])
    assert cpp_steps == []


@torch.no_grad()
def test_rings_in_several_threads(cpp_steps):
    model = build(2)
    x_TBD = torch.randn(8, 3, model.options.decoder_embed_dim)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: torch.no_grad()(steps_of)(model, x_TBD * (i + 1), model.new_ring()), range(8)))
    for i, ours in enumerate(found):
        assert_close(ours, exact(model, x_TBD * (i + 1)))
    assert len(cpp_steps) == 8 * 8


@torch.no_grad()
def test_one_changed_entry():
    """Through ``data``, which torch does not count: in any parameter, at any place."""
    model = build(2, decoder_embed_dim=48, decoder_ffn_embed_dim=96)
    x_TBD = torch.randn(1, 2, 48)
    steps_of(model, x_TBD, model.new_ring())
    kept = model.stepper.kept["cpp"]
    for parameter in model.parameters():
        for place in {0, parameter.numel() - 1, int(torch.randint(parameter.numel(), ()))}:
            packed = kept["step"]
            parameter.data.view(-1)[place] += 1e-3
            steps_of(model, x_TBD, model.new_ring())
            assert kept["step"] is not packed


@pytest.mark.parametrize("seed", range(12))
@torch.no_grad()
def test_nan_and_infinity(seed, cpp_steps):
    """Steps show what plain steps show."""
    model = build(seed, FeedbackTransformer if seed % 2 else RelativeTransformer, activation_fn="relu")
    draw = torch.Generator().manual_seed(seed)
    parameters = list(model.parameters())
    parameter = parameters[torch.randint(len(parameters), (), generator=draw)]
    parameter.view(-1)[torch.randint(parameter.numel(), (), generator=draw)] = spoiled.VALUES[seed % 3]
    plain = copy.deepcopy(model)
    plain.stepper = Stepper("reference")
    x_TBD = torch.randn(6, 2, model.options.decoder_embed_dim)
    ours, expected = (steps_of(m, x_TBD, m.new_ring()) for m in (model, plain))
    assert spoiled.kinds(ours).equal(spoiled.kinds(expected)) and len(cpp_steps) == 6
