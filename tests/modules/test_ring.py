"""Decoding with captured steps: they work on all slots, filled or not, and take the position from the device.

These tests need no GPU: ``RecordedGraph`` stands in for CUDA graphs.
"""

import pytest
import torch

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer
from fb_fairseq.ops.feedback import ring
from fb_fairseq.ops.feedback.cuda_graphs import stepper, steps
from fb_fairseq.ops.feedback.loops import Stepper
from tests.modules.options import random_options, randomise
from tests.ops.recorded_graph import capture_on_cpu

STEPS, B = 40, 3


@pytest.fixture
def captures(monkeypatch):
    """Capture steps on a CPU; returns a list that grows with each graph made."""
    monkeypatch.setattr(ring, "FIRST_SLOTS", 8)
    return capture_on_cpu(monkeypatch, steps, stepper, capture_at=3)


def stack_and_stream(stack, seed, **changes):
    torch.manual_seed(seed)
    options = random_options(seed, step_loop="triton", **changes)
    model = stack(options).double().eval()
    randomise(model)
    return model, torch.randn(STEPS, B, options.decoder_embed_dim, dtype=torch.double)


@pytest.mark.parametrize("storage", ["keys-values", "vectors"])
@pytest.mark.parametrize("stack", [FeedbackTransformer, RelativeTransformer, AllAttention])
@pytest.mark.parametrize("seed", range(4))
@torch.no_grad()
def test_equals_a_block(captures, stack, seed, storage):
    """Slots that fill, grow in number, and are overwritten."""
    changes = {"activation_fn": "relu", "persistent_memory_size": 5} if stack is AllAttention else {}
    model, x = stack_and_stream(stack, seed, attention_span=20, **changes)
    memory = model.new_ring(storage)
    y = torch.stack([model.run_step(x_BD, memory) for x_BD in x])
    torch.testing.assert_close(y, model(x)[0], atol=1e-10, rtol=1e-10)
    most = 3 if memory.span > 16 else 2 if memory.span > 8 else 1
    assert 1 <= len(captures) <= most, "one for each number of slots"


@torch.no_grad()
def test_reordering(captures):
    """In place while the number of streams stays the same, so that the graph can still be replayed."""
    model, x = stack_and_stream(FeedbackTransformer, 1, attention_span=6, adaptive_span=False)
    memory, orders = model.new_ring("keys-values"), {10: [2, 0, 0], 20: [1, 1, 0, 2], 30: [3]}
    rows, past = torch.arange(B), x[:0]
    for t in range(STEPS):
        x_BD = x[t, rows % B] + rows[:, None]
        if t in orders:
            order = torch.tensor(orders[t])
            memory.reorder(order)
            past, rows = past[:, order], torch.arange(len(order))
            x_BD = x[t, rows % B]
        past = torch.cat([past, x_BD[None]])
        y = model.run_step(x_BD, memory)
        torch.testing.assert_close(y, model(past)[0][-1], atol=1e-10, rtol=1e-10)
    assert len(captures) == 2, "one for 3 or 4 streams, one for a single one"


@torch.no_grad()
def test_new_weights_are_seen(captures):
    model, x = stack_and_stream(FeedbackTransformer, 3)
    memory = model.new_ring("keys-values")
    for x_BD in x[:20]:
        model.run_step(x_BD, memory)
    kept = memory.buffer.clone()

    def again():
        memory.buffer.copy_(kept)
        memory.position = 20
        return model.run_step(x[20], memory)

    before = again()
    assert again().equal(before) and captures
    model.layers[0].fc1.weight.mul_(-1)
    after = again()
    model._stepper = Stepper("reference")
    torch.testing.assert_close(after, again(), atol=1e-12, rtol=1e-12)
    assert not after.allclose(before)


@torch.no_grad()
def test_a_capture_that_fails(monkeypatch, captures, caplog):
    """Decoding continues operation by operation, and no other capture is tried."""

    def fail(function):
        captures.append(1)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(steps, "CudaGraph", fail)
    model, x = stack_and_stream(FeedbackTransformer, 0)
    for _ in range(2):
        memory = model.new_ring("keys-values")
        y = torch.stack([model.run_step(x_BD, memory) for x_BD in x])
        torch.testing.assert_close(y, model(x)[0], atol=1e-10, rtol=1e-10)
    assert len(captures) == 1 and caplog.text.count("capturing failed") == 1


def test_gradients_and_autocast_between_captured_steps(captures):
    """Such steps run uncaptured, and the graph's next replay sees what they have left."""
    model, x = stack_and_stream(FeedbackTransformer, 1, attention_span=6, adaptive_span=False)
    graphs, memory, plain = model.stepper, model.new_ring("keys-values"), model.new_ring("keys-values")
    expected = None
    for t, x_BD in enumerate(x):
        for m in (memory, plain):
            model._stepper = graphs if m is memory else Stepper("reference")
            with torch.set_grad_enabled(t in (14, 15)):
                with torch.autocast("cpu", torch.bfloat16, enabled=t in (20, 21)):
                    y = model.run_step(x_BD, m).detach()
            if t == 18:
                m.reorder(torch.tensor([2, 0, 0]))
            expected = y if m is memory else expected
        torch.testing.assert_close(y, expected if m is memory else y)
        torch.testing.assert_close(
            memory.buffer[..., : t + 1, :], plain.buffer[..., : t + 1, :], atol=1e-10, rtol=1e-10
        )
    assert captures


def test_with_gradients_nothing_is_captured(captures):
    model, x = stack_and_stream(FeedbackTransformer, 0)
    memory = model.new_ring("keys-values")
    for x_BD in x[:10]:
        model.run_step(x_BD, memory).sum()
    assert not captures


def test_without_a_gpu():
    model, x = stack_and_stream(FeedbackTransformer, 0)
    memory = model.new_ring("keys-values")
    y = torch.stack([model.run_step(x_BD, memory) for x_BD in x])
    torch.testing.assert_close(y, model(x)[0], atol=1e-10, rtol=1e-10)
    assert memory.holder is None and not model.stepper.graphs.by_shapes
