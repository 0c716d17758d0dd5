"""Episodes that end inside a block: the steps before are forgotten, in blocks as well as step by step."""

import pytest
import torch

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer
from fb_fairseq.modules.lstm import LSTM, LSTMOptions
from fb_fairseq.ops.feedback.cuda_graphs import steps
from fb_fairseq.ops.feedback.cuda_graphs.stepper import StepGraphs
from tests.modules.options import random_stack
from tests.ops.recorded_graph import capture_on_cpu

T, B = 23, 3
# First steps of each stream's episodes; without step 0, the carried episode continues.
STARTS = {0: [0], 1: [5, 6, 19], 2: []}
CARRIED = 4  # steps before the block, of the episode that each stream is in
STACKS = [FeedbackTransformer, RelativeTransformer, AllAttention, LSTM]


def ages():
    """Steps [T, B] since the start of the episode that each stream is in."""
    age_TB = torch.zeros(T, B, dtype=torch.long)
    for b in range(B):
        age = CARRIED
        for t in range(T):
            age = 0 if t in STARTS[b] else age
            age_TB[t, b] = age
            age += 1
    return age_TB


def stack_and_stream(stack, seed, **changes):
    """A stack, and the steps of a block behind those before it."""
    torch.manual_seed(seed)
    if stack is LSTM:
        model = LSTM(LSTMOptions(decoder_layers=2, decoder_embed_dim=12)).double().eval()
        return model, torch.randn(T + CARRIED, B, 12, dtype=torch.double)
    model = random_stack(stack, seed, **changes).double().eval()
    return model, torch.randn(T + CARRIED, B, model.options.decoder_embed_dim, dtype=torch.double)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("seed", range(4))
def test_episodes_alone(stack, seed):
    """Each episode gives the same result as on its own, without anything before it."""
    model, x_TBD = stack_and_stream(stack, seed)
    with torch.no_grad():
        _, state = model(x_TBD[:CARRIED])
        together, _ = model(x_TBD[CARRIED:], state, ages())
        for b in range(B):
            bounds = sorted({0, *STARTS[b], T})
            for first, last in zip(bounds, bounds[1:]):
                continues = first == 0 and 0 not in STARTS[b]
                begin = 0 if continues else CARRIED + first
                alone, _ = model(x_TBD[begin : CARRIED + last, b : b + 1])
                torch.testing.assert_close(together[first:last, b], alone[-(last - first) :, 0])


@pytest.mark.parametrize("carried", [1, CARRIED])
@pytest.mark.parametrize("stack", STACKS)
def test_steps_grow_older(stack, carried):
    """An episode goes on without being told so at each step."""
    model, x_TBD = stack_and_stream(stack, 0)
    with torch.no_grad():
        whole, _ = model(x_TBD[:12])
        _, state = model(x_TBD[:carried])
        memory = model.ring_after(state, "keys-values")
        memory.reset(torch.full((B,), carried))
        for t in range(carried, 12):
            torch.testing.assert_close(model.run_step(x_TBD[t], memory), whole[t])


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("storage", ["keys-values", "vectors"])
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("seed", range(4))
def test_steps_and_block(monkeypatch, stack, seed, storage, captured):
    """Step by step from the state after a block, also with steps captured as graphs."""
    model, x_TBD = stack_and_stream(stack, seed, step_loop="triton" if captured else "auto")
    if captured:
        if stack is LSTM:
            pytest.skip("an LSTM's steps are not captured")
        capture_on_cpu(monkeypatch, steps, StepGraphs, capture_at=3)
    age_TB = ages()
    with torch.no_grad():
        _, state = model(x_TBD[:CARRIED])
        block, after = model(x_TBD[CARRIED:], state, age_TB)
        memory = model.ring_after(state, storage)
        for t in range(T):
            memory.reset(age_TB[t])
            torch.testing.assert_close(model.run_step(x_TBD[CARRIED + t], memory), block[t])
        # And from the state after the block.
        memory = model.ring_after(after, storage)
        memory.reset(age_TB[-1] + 1)
        expected, _ = model(x_TBD[:1], after, age_TB[-1:] + 1)
        torch.testing.assert_close(model.run_step(x_TBD[0], memory), expected[0])
        order = torch.tensor([2, 2, 0, 1])
        memory.reorder(order)
        again, _ = model(x_TBD[:2], after, torch.stack([age_TB[-1] + 1, age_TB[-1] + 2]))
        torch.testing.assert_close(model.run_step(x_TBD[1][order], memory), again[1][order])


@pytest.mark.parametrize("stack", STACKS)
def test_no_gradient_across_the_end(stack):
    model, x_TBD = stack_and_stream(stack, 1)
    x_TBD = x_TBD[CARRIED:].requires_grad_()
    model(x_TBD, None, ages())[0][5:, 1].sum().backward()
    assert not x_TBD.grad[:5].any() and x_TBD.grad[5:, 1].any()
