"""Captured decoding steps compute what a block does, and serve every ring of their shapes.

These tests need no GPU: ``RecordedGraph`` stands in for CUDA graphs.
"""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer
from fb_fairseq.ops import capturing
from fb_fairseq.ops.feedback import ring
from fb_fairseq.ops.feedback.cuda_graphs import steps as graph_steps
from fb_fairseq.ops.feedback.cuda_graphs.padding import hypotheses, padded_rows, round_up
from fb_fairseq.ops.feedback.cuda_graphs.stepper import StepGraphs
from fb_fairseq.ops.feedback.stepper import Stepper
from fb_fairseq.ops.feedback.types import EncoderContext
from tests.modules.options import random_stack
from tests.ops.recorded_graph import capture_on_cpu

CAPTURE_AT = 3
D, H, LAYERS, B = 24, 3, 2, 4


@pytest.fixture
def captures(monkeypatch):
    """Capture steps on a CPU; returns a list that grows with each graph made."""
    monkeypatch.setattr(ring, "FIRST_SLOTS", 8)
    return capture_on_cpu(monkeypatch, graph_steps, StepGraphs, CAPTURE_AT)


def build(step_loop="triton", seed=1, **changes):
    """A stack of the sizes above in evaluation and double precision."""
    sizes = dict(decoder_embed_dim=D, decoder_attention_heads=H, decoder_layers=LAYERS, attention_span=6)
    options = {**sizes, "adaptive_span": False, **changes}
    return random_stack(FeedbackTransformer, seed, step_loop=step_loop, **options).double().eval()


def plain_copy(model):
    """The same model, whose steps are never captured."""
    other = copy.deepcopy(model)
    other.stepper = Stepper("reference")
    return other


def graphs_of(model):
    """The graphs of a model's decoding steps, with --step-loop triton."""
    return model.stepper.graphs.by_key


def embeddings(steps, rows=B, seed=2):
    """Embeddings [T, B, D], the same for the same seed."""
    torch.manual_seed(seed)
    return torch.randn(steps, rows, D, dtype=torch.double)


def equal_steps(models, rings, x_TBD):
    """Run steps by two models, each with its memory: the features are equal."""
    for x_BD in x_TBD:
        results = [model.run_step(x_BD, memory) for model, memory in zip(models, rings)]
        torch.testing.assert_close(*results, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("storage", ["keys-values", "vectors"])
@pytest.mark.parametrize("stack", [FeedbackTransformer, RelativeTransformer, AllAttention])
@pytest.mark.parametrize("seed", range(4))
@torch.no_grad()
def test_equals_a_block(captures, stack, seed, storage):
    """Slots that fill, grow in number, and are overwritten: steps work on all of them, filled or not."""
    model = random_stack(stack, seed, step_loop="triton", attention_span=20).double().eval()
    x_TBD = torch.randn(40, 3, model.options.decoder_embed_dim, dtype=torch.double)
    memory = model.new_ring(storage)
    y_TBD = torch.stack([model.run_step(x_BD, memory) for x_BD in x_TBD])
    torch.testing.assert_close(y_TBD, model(x_TBD)[0], atol=1e-10, rtol=1e-10)
    most = len([slots for slots in (0, 8, 16) if memory.span > slots])
    assert 1 <= len(captures) <= most, "one for each number of slots"


@torch.no_grad()
def test_reordering(captures):
    """In place while the number of streams stays the same, so that the graph can still be replayed."""
    model = build()
    x_TBD = embeddings(40)
    memory, orders = model.new_ring(), {10: [2, 0, 0, 1], 20: [1, 1, 0, 2, 3], 30: [3]}
    past = x_TBD[:0]
    for t in range(40):
        if t in orders:
            memory.reorder(torch.tensor(orders[t]))
            past = past[:, orders[t]]
        past = torch.cat([past, embeddings(1, past.shape[1] if t else B, seed=t)])
        y_BD = model.run_step(past[-1], memory)
        torch.testing.assert_close(y_BD, model(past)[0][-1], atol=1e-10, rtol=1e-10)
    assert len(captures) == 3, "for 4 streams, 5 to 8, and a single one"


def test_gradients_and_autocast_between_captured_steps(captures):
    """Such steps run uncaptured, and the graph's next replay sees what they have left."""
    model = build()
    plain = plain_copy(model)
    rings = model.new_ring(), plain.new_ring()
    for t, x_BD in enumerate(embeddings(30)):
        with torch.set_grad_enabled(t in (14, 15)), torch.autocast("cpu", torch.bfloat16, enabled=t in (20, 21)):
            ours, expected = (m.run_step(x_BD, memory).detach() for m, memory in zip((model, plain), rings))
        torch.testing.assert_close(ours, expected)
        if t == 18:
            for memory in rings:
                memory.reorder(torch.tensor([2, 0, 0, 1]))
    assert len(captures) == 1


@torch.no_grad()
def test_new_weights_are_seen(captures):
    model = build()
    x_TBD = embeddings(21)
    memory = model.new_ring()
    for x_BD in x_TBD[:20]:
        model.run_step(x_BD, memory)
    model.layers[0].fc1.weight.mul_(-1)
    equal_steps((model, plain_copy(model)), (memory, copy_of(memory)), x_TBD[20:])
    assert len(captures) == 1


@pytest.mark.parametrize("modes", [(torch.inference_mode, torch.no_grad), (torch.no_grad, torch.inference_mode)])
def test_the_next_batch_uses_the_same_graph(captures, modes):
    """A graph that is made in one mode runs in the other; from the second step on, whose slots exist."""
    model = build()
    plain = plain_copy(model)
    for mode in modes:
        with mode():
            memory = model.new_ring()
            equal_steps((model, plain), (memory, plain.new_ring()), embeddings(10))
            assert memory.graph is not None
            del memory
    assert len(captures) == 1
    with torch.no_grad():
        memory = model.new_ring()
        equal_steps((model, plain), (memory, plain.new_ring()), embeddings(2))
    assert memory.graph is not None


@torch.no_grad()
def test_rings_take_turns(captures):
    """Two rings of the same shapes: each takes the graph from the other one, slots and all."""
    model = build()
    plain = plain_copy(model)
    rings = [model.new_ring() for _ in range(2)]
    others = [plain.new_ring() for _ in range(2)]
    held = []
    for x_BD in embeddings(4 * CAPTURE_AT):
        for pair in zip(rings, others):
            equal_steps((model, plain), pair, x_BD[None])
            held.append([memory.graph is not None for memory in rings])
    assert held[-2:] == [[True, False], [False, True]] and len(captures) == 1
    equal_steps((model, plain), (rings[0], others[0]), embeddings(10))


@pytest.mark.parametrize("rows,sentences,each,padded", [(3, 1, 3, 3), (6, 2, 3, 6), (9, 3, 3, 12), (4, 0, 4, 4)])
def test_sentences_are_rounded_up(rows, sentences, each, padded):
    """Not their hypotheses."""
    encoder = [EncoderContext(torch.empty(5, sentences, 2, 4), torch.empty(5, sentences, 2, 4), None)]
    assert hypotheses(rows, encoder) == each and padded_rows(rows, encoder) == padded


@torch.no_grad()
@pytest.mark.parametrize("rows,padded", [(1, 1), (4, 4), (7, 8), (8, 8), (9, 16), (33, 64), (65, 128)])
def test_rows_are_rounded_up(captures, rows, padded):
    assert padded_rows(rows, ()) == padded
    if rows < 20:
        model = build()
        plain = plain_copy(model)
        memory = model.new_ring()
        equal_steps((model, plain), (memory, plain.new_ring()), embeddings(10, rows))
        assert memory.graph.rows == padded and len(memory.buffer[0]) == rows


def encoder_of(stack, sentences, sources, padding):
    """An encoder's output for each layer of a translation model."""
    o = stack.options
    shape = (sources, sentences, o.decoder_attention_heads, o.decoder_embed_dim // o.decoder_attention_heads)
    mask = torch.zeros(sentences, sources, dtype=torch.bool) if padding else None
    if padding:
        mask[0, sources // 2 :] = True
    return [EncoderContext(*torch.randn(2, *shape, dtype=torch.double), mask) for _ in stack.layers]


@torch.no_grad()
def test_the_encoders_output(captures):
    """Replaced by reordering, longer, of fewer sentences, padded or not; several rows per sentence."""
    pytest.importorskip("fairseq")
    from tests.models.decoders import build as build_translation_model

    stack = build_translation_model(step_loop="triton").double().eval().decoder.stack
    options, width = stack.loop_options(6, alignment_layer=0), stack.options.decoder_embed_dim
    plain = plain_copy(stack)
    for sentences, sources, padding in ((3, 7, True), (3, 5, False), (3, 33, True), (2, 5, True), (9, 5, True)):
        rings = stack.new_ring(), plain.new_ring()
        encoder = encoder_of(stack, sentences, sources, padding)
        rows = 2 * sentences
        for t in range(12):
            if t == 8:  # beam search replaces the tensors when sentences change rows
                encoder = encoder_of(stack, sentences, sources, padding)
            if t == 11 and sources == 7:
                encoder[0].values_CBHE[6] = float("inf")  # must not reach the next batch, which is shorter
                break
            x_BD = torch.randn(rows, width, dtype=torch.double)
            both = zip((stack, plain), rings)
            ours, expected = (model.decode_step(x_BD, memory, options, encoder) for model, memory in both)
            for name in ("out_BD", "memory_KBD", "aligned_BC"):
                a = getattr(ours, name)
                b = getattr(expected, name)
                torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)
        assert rings[0].graph is not None
    # With 8 slots and with 16: 5 or 7 source positions, 33, 2 sentences, 9 sentences.
    assert len(captures) == 2 * 4 and round_up(33, 32) == 64


@torch.no_grad()
def test_parameters_elsewhere_in_memory(captures):
    """Another type, or ``parameter.data`` replaced: the graphs would read what is no longer there."""
    model = build()
    memory = model.new_ring()
    for x_BD in embeddings(8):
        model.run_step(x_BD, memory)
    model.layers[0].fc1.weight.data = -model.layers[0].fc1.weight.data
    plain = plain_copy(model)
    equal_steps((model, plain), (memory, copy_of(memory)), embeddings(8))
    assert len(captures) == 2


def copy_of(memory):
    """A memory of its own with the same contents."""
    other = ring.MemoryRing(memory.span)
    vars(other).update(vars(memory), graph=None, buffer=memory.buffer.clone())
    return other


@torch.no_grad()
def test_capturing_fails_elsewhere(captures):
    """Graphs are freed, and rings get their slots back."""
    model = build()
    plain = plain_copy(model)
    rings = model.new_ring(), plain.new_ring()
    equal_steps((model, plain), rings, embeddings(8))
    assert rings[0].graph is not None
    capturing.disable_capturing(RuntimeError("out of memory"))
    assert rings[0].graph is None and not graphs_of(model)
    equal_steps((model, plain), rings, embeddings(8))


@torch.no_grad()
def test_threads_have_graphs_of_their_own(captures):
    model = build()
    plain = plain_copy(model)
    x_TBD = embeddings(30)

    def decode(model):
        with torch.no_grad():
            memory = model.new_ring()
            return torch.stack([model.run_step(x_BD, memory) for x_BD in x_TBD])

    expected = decode(plain)
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(decode, 6 * [model]):
            torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    assert captures and not graphs_of(model)


@torch.no_grad()
def test_a_ring_that_outgrows_its_graph_takes_its_ages_along(captures):
    model = build(attention_span=20)
    plain = plain_copy(model)
    pairs = [(model.new_ring(), plain.new_ring()) for _ in range(2)]
    for pair, steps in zip(pairs, (9, 6)):  # the first one has 16 slots now, the second one the graph of 8
        equal_steps((model, plain), pair, embeddings(2))
        for memory in pair:
            memory.reset(torch.tensor([0, 1, 2, 2]))
        equal_steps((model, plain), pair, embeddings(steps))
    equal_steps((model, plain), pairs[0], embeddings(3))
