"""Parallel passes: exact where they converge, and left to an ordinary loop where they do not."""

import pytest
import torch

from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.ops import cuda_graphs
from fb_fairseq.ops.feedback import parallel
from fb_fairseq.ops.feedback.loops import run_block
from fb_fairseq.ops.feedback.parallel import ParallelBlock, parallel_block
from fb_fairseq.ops.feedback.reference import feedback_block
from tests.modules.options import random_options, randomise
from tests.ops.feedback.cases import KINDS, Case, compare

TIGHT = 1e-13


def ordinary(inputs):
    raise AssertionError("these passes converge")


def loop_of(passes=0, tolerance=TIGHT, other=ordinary, seen=None):
    """The passes as a loop of a ``Case``."""

    def run(inputs):
        found = parallel_block(other, passes, tolerance, inputs)
        if seen is not None:
            seen.append(found)
        return found[:2]

    return run


@pytest.mark.parametrize("seed", range(14))
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_memory_and_every_gradient(seed, kind):
    """Converged, or after as many passes as steps."""
    case = Case(seed, **KINDS[kind])
    compare(case.run(loop_of()), case.run(feedback_block), 1e-9)


def sequential(seed, **changes):
    """A case whose memory passes through many steps."""
    fixed = dict(memory_composition="weighted", adaptive_span=False, attention_span=8, decoder_layers=3)
    return Case(seed, steps=30, **{**fixed, **changes})


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_converged(seed):
    case = sequential(seed)
    seen = []
    loose = []
    compare(case.run(loop_of(seen=seen)), case.run(feedback_block), 1e-9)
    assert 10 < seen[0].passes < 30 and float(seen[0].change) < 1e-12
    case.run(loop_of(tolerance=1e-3, seen=loose))
    assert loose[0].passes < seen[0].passes and 0 < float(loose[0].change) < 1e-3


@pytest.mark.parametrize("carried", [0, 3])
@pytest.mark.parametrize("steps,span", [(1, 4), (2, 1), (11, 6), (5, 30)])
def test_awkward_sizes(steps, span, carried):
    case = Case(5, steps, 2, carried, attention_span=span, adaptive_span=False, relative_positions="key-value")
    compare(case.run(loop_of()), case.run(feedback_block), 1e-9)


@pytest.mark.parametrize("passes", [1, 2, 4, 6])
def test_fixed_passes(passes):
    """Against passes unrolled by autograd; the gradient goes through the last ones."""
    case = Case(3, steps=12)

    def unrolled(inputs):
        block = ParallelBlock(inputs)
        memory = block.start_KTBD
        for number in range(passes):
            if number == max(0, passes - parallel.UNROLLED):
                memory = memory.detach() if number else memory
            out, memory = block(memory)
        return out, memory.detach()

    expected = case.run(unrolled)
    ours = case.run(loop_of(passes))
    compare(ours, expected, 1e-11)
    exact = case.run(feedback_block)
    torch.testing.assert_close(ours["memory"][:, :passes], exact["memory"][:, :passes], atol=1e-10, rtol=1e-10)
    assert not torch.allclose(ours["memory"][:, -1], exact["memory"][:, -1], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("limit,value", [("LIMIT", 5), ("PROGRESS", 1e-9)])
@pytest.mark.parametrize("kind", [{}, {"cross": True}, {"resets": True}])
@pytest.mark.parametrize("gradients", [False, True])
def test_what_does_not_converge_is_exact(kind, gradients, limit, value, monkeypatch):
    """The ordinary loop runs the block."""
    monkeypatch.setattr(parallel, limit, value)
    case = sequential(5, **kind)
    lengths = []
    seen = []
    if kind.get("resets"):  # in one stream, once
        case.age_TB = torch.full((30, 3), 100)
        case.age_TB[12:, 1] = torch.arange(18)

    def other(inputs):
        lengths.append(len(inputs.x_TBD))
        return run_block("reference", inputs)

    loop = loop_of(other=other, seen=seen)
    if gradients:
        compare(case.run(loop), case.run(feedback_block), 1e-9)
    else:
        with torch.no_grad():
            compare(case.results(loop), case.results(feedback_block), 1e-9)
    passes = {"LIMIT": 5, "PROGRESS": parallel.PATIENCE + 1}[limit]
    assert seen[0].passes == passes and seen[0].change is None
    assert lengths == [30]


def build(seed=1, **changes):
    torch.manual_seed(seed)
    model = FeedbackTransformer(random_options(seed, **{"step_loop": "parallel", **changes})).double()
    randomise(model)
    return model


def test_blocks_may_be_cut_anywhere():
    model = build(parallel_tolerance=TIGHT).eval()
    x_TBD = torch.randn(23, 2, model.options.decoder_embed_dim, dtype=torch.double)
    with torch.no_grad():
        whole, _ = model(x_TBD)
        for cuts in ([1, 2, 20], [10, 13], [23]):
            state, outputs = None, []
            for part in x_TBD.split(cuts):
                out, state = model(part, state)
                outputs.append(out)
            torch.testing.assert_close(torch.cat(outputs), whole, atol=1e-9, rtol=1e-9)
        ring = model.new_ring()
        torch.testing.assert_close(torch.stack([model.run_step(x, ring) for x in x_TBD]), whole, atol=1e-9, rtol=1e-9)


def test_fixed_passes_are_for_training(caplog):
    """Evaluation is exact; the log says so, and how much the last pass changed."""
    cuda_graphs.log_once.cache_clear()
    caplog.set_level("WARNING")
    model = build(parallel_passes=2, parallel_tolerance=TIGHT)
    exact = build(step_loop="reference")
    x_TBD = torch.randn(15, 2, model.options.decoder_embed_dim, dtype=torch.double)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(x_TBD)[0], exact.eval()(x_TBD)[0], atol=1e-9, rtol=1e-9)
    assert not caplog.records and "parallel_change" not in model.report().logged
    model.train()
    for _ in range(2):
        model(x_TBD)
    logged = model.report().logged
    assert logged["parallel_passes"] == 2 and logged["parallel_change"] > 0.01
    assert caplog.text.count("training is approximate") == 1


def test_short_blocks_are_exact(caplog):
    """Blocks of no more steps than passes: nothing is approximate, whatever the last pass has changed."""
    cuda_graphs.log_once.cache_clear()
    for passes in (0, 3):
        model = build(memory_composition="weighted", parallel_passes=passes)
        model(torch.randn(2, 2, model.options.decoder_embed_dim, dtype=torch.double))
    assert not caplog.records


def test_without_anything_to_learn():
    """No layer runs, or all parameters are frozen."""
    model = build(decoder_layers=1)
    x_TBD = torch.randn(4, 2, model.options.decoder_embed_dim, dtype=torch.double)
    model.active_layers = lambda: [False]
    model(x_TBD.requires_grad_())[0].sum().backward()
    x_TBD = x_TBD.detach()
    model = build(decoder_layers=1).requires_grad_(False)
    assert not model(x_TBD)[0].requires_grad


def test_half_precision():
    """Passes end at the precision of the type."""
    model = build(adaptive_span=False).float()
    x_TBD = torch.randn(30, 2, model.options.decoder_embed_dim)
    with torch.autocast("cpu", torch.bfloat16):
        model(x_TBD)[0].float().pow(2).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert model.convergence["parallel_passes"] <= 30
