"""Every step loop on a GPU computes what the reference computes there: outputs, memory and all gradients; and steps.

``examples/benchmark/gpu.py`` runs these tests; elsewhere they are skipped. ``FB_FAIRSEQ_GPU_TESTS=cpu`` runs them on
the CPU, to try the tests themselves.
"""

import dataclasses
import os
from functools import partial

import pytest
import torch

from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.ops.feedback.loops import AUTO, GRAPHS, LOOPS, run_block
from fb_fairseq.ops.feedback.reference import feedback_block
from tests.modules.options import random_options
from tests.ops.feedback.cases import Case, compare_norms

NAMES = [AUTO, *(name for name, loop in LOOPS.items() if "cuda" in loop.devices)]
MANY_SLOTS = 300  # more than one program reads
FP32, HALF = 1e-3, 0.1  # the norm of a difference, relative to the reference's


@pytest.fixture
def device():
    """The device; everything that a test makes is on it."""
    name = os.environ.get("FB_FAIRSEQ_GPU_TESTS", "cuda")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    with torch.device(name):
        yield torch.device(name)


def cloned(found):
    return {name: None if value is None else value.clone() for name, value in found.items()}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", NAMES)
def test_blocks(device, name, seed):
    """With dropout, episodes, carried memory; with odd seeds, the second time activations are recomputed."""
    case = Case(seed, dtype=torch.float32, resets=seed % 3 == 1)
    plain = cloned(case.run(feedback_block))
    for recompute in (False, seed % 2 == 1):
        compare_norms(case.run(partial(run_block, name), recompute), plain, FP32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(device, name, dtype):
    """Near the reference in half precision, and so finite."""
    case = Case(2, dtype=dtype, attention_dropout=0, activation_dropout=0)
    plain = cloned(case.run(feedback_block))
    compare_norms(case.run(partial(run_block, name)), plain, HALF)


@pytest.mark.parametrize("name", NAMES)
def test_many_slots(device, name):
    """Several programs share the slots of a head; more steps than one tile of the backward pass. As the memory is full,
    the second block is captured, and the third one replays it."""
    sizes = dict(steps=40, streams=2, carried=MANY_SLOTS, attention_span=MANY_SLOTS, decoder_layers=2)
    case = Case(5, dtype=torch.float32, adaptive_span=False, **sizes)
    plain = cloned(case.run(feedback_block))
    for _ in range(3):
        compare_norms(case.run(partial(run_block, name)), plain, FP32)


@pytest.mark.parametrize("seed,span,streams", [*((seed, 6, 3) for seed in range(4)), (5, MANY_SLOTS, 1)])
@pytest.mark.parametrize("name", NAMES)
def test_steps(device, name, seed, span, streams):
    """Step by step as in a block, after a block; more steps than the ring has slots."""
    with torch.no_grad():
        options = random_options(seed, step_loop=name, attention_span=span)
        model = FeedbackTransformer(options).eval()
        x_TBD = torch.randn(span + 10, streams, options.decoder_embed_dim)
        expected, _ = model.run_block(x_TBD)
        first, state = model.run_block(x_TBD[:4])
        ring = model.ring_after(state)
        found = torch.stack([*first, *(model.run_step(x_BD, ring) for x_BD in x_TBD[4:])])
    assert (found - expected).norm() < FP32 * expected.norm()


@pytest.mark.parametrize("half", [None, torch.bfloat16])
def test_a_memory_that_grows(device, half):
    """From an empty to a full memory, as in an epoch's first blocks; kernels run, and were compared with torch."""
    options = random_options(2, step_loop="triton", attention_span=40, adaptive_span=False)
    models = [FeedbackTransformer(dataclasses.replace(options, step_loop=name)) for name in ("triton", "reference")]
    models[1].load_state_dict(models[0].state_dict())
    x_TBD = torch.randn(16, 5, options.decoder_embed_dim)
    states, tolerance = [None, None], HALF if half else FP32
    for _ in range(5):
        found = []
        for i, model in enumerate(models):
            torch.manual_seed(3)  # of dropout
            model.zero_grad()
            with torch.autocast(device.type, half or torch.bfloat16, enabled=half is not None):
                y_TBD, states[i] = model.run_block(x_TBD, states[i])
            y_TBD.float().square().sum().backward()
            found.append(cloned({"output": y_TBD, **{name: p.grad for name, p in model.named_parameters()}}))
        compare_norms(*found, tolerance)
    if device.type == "cuda":
        assert None in GRAPHS.problems.values() and GRAPHS.by_key
