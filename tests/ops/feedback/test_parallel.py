"""Parallel passes, over all steps at once or in groups: until they converge, or a fixed number."""

import pytest
import torch

from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.ops import cuda_graphs
from fb_fairseq.ops.feedback import parallel
from fb_fairseq.ops.feedback.parallel import ParallelBlock, parallel_block
from fb_fairseq.ops.feedback.reference import feedback_block
from tests.modules.options import random_options, randomise
from tests.ops.feedback.cases import KINDS, Case, compare

TIGHT = 1e-13


def loop_of(passes=0, groups=1, tolerance=TIGHT, seen=None):
    """The passes as a loop of a ``Case``. ``seen``: gets the number of passes."""

    def run(inputs):
        results, logged = parallel_block(passes, groups, tolerance, inputs)
        if seen is not None:
            seen.append(float(logged["parallel_passes"]))
        return results

    return run


@pytest.mark.parametrize("groups", [1, 3, 8, 9, 20])
@pytest.mark.parametrize("seed", range(14))
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_memory_and_every_gradient(seed, kind, groups):
    """Converged, or after as many passes as make 9 steps exact: with as many groups as steps, one."""
    case = Case(seed, **KINDS[kind])
    seen = []
    compare(case.run(loop_of(groups=groups, seen=seen)), case.run(feedback_block), 1e-9)
    assert seen[0] <= -(-9 // groups)


def sequential(seed, **changes):
    """A case whose memory passes through many steps."""
    fixed = dict(memory_composition="weighted", adaptive_span=False, attention_span=8, decoder_layers=3)
    return Case(seed, steps=30, **{**fixed, **changes})


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_converged(seed):
    case = sequential(seed)
    seen = []
    compare(case.run(loop_of(seen=seen)), case.run(feedback_block), 1e-9)
    compare(case.run(loop_of(groups=3, seen=seen)), case.run(feedback_block), 1e-9)
    case.run(loop_of(tolerance=1e-3, seen=seen))
    exact, in_groups, loose = seen
    assert loose < exact and in_groups < exact and 10 < exact < 30


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("carried", [0, 3])
@pytest.mark.parametrize("steps,span", [(1, 4), (2, 1), (11, 6), (5, 30)])
def test_awkward_sizes(steps, span, carried, groups):
    case = Case(5, steps, 2, carried, attention_span=span, adaptive_span=False, relative_positions="key-value")
    compare(case.run(loop_of(groups=groups)), case.run(feedback_block), 1e-9)


@pytest.mark.parametrize("passes,groups", [(1, 1), (2, 1), (4, 1), (6, 1), (1, 3), (2, 3), (5, 2)])
def test_fixed_passes(passes, groups):
    """Against passes over all steps, of which one group is kept each time, unrolled by autograd; the gradient goes
    through the last ones."""
    case = Case(3, steps=12)

    def unrolled(inputs):
        block = ParallelBlock(inputs)
        out, memory = inputs.x_TBD, block.start_KTBD
        for number in range(passes):
            if number == max(0, passes - parallel.UNROLLED):
                memory = memory.detach() if number else memory
            for group in range(groups):
                new, left = block(memory)
                out = out.slice_scatter(new[group::groups], 0, group, None, groups)
                memory = memory.slice_scatter(left[:, group::groups], 1, group, None, groups)
        return out, memory.detach()

    expected = case.run(unrolled)
    ours = case.run(loop_of(passes, groups, tolerance=9))  # (whatever they change)
    compare(ours, expected, 1e-11)
    exact = case.run(feedback_block)
    right = passes * groups
    torch.testing.assert_close(ours["memory"][:, :right], exact["memory"][:, :right], atol=1e-10, rtol=1e-10)
    assert not torch.allclose(ours["memory"][:, -1], exact["memory"][:, -1], atol=1e-10, rtol=1e-10)


def build(seed=1, **changes):
    torch.manual_seed(seed)
    model = FeedbackTransformer(random_options(seed, **{"step_loop": "parallel", **changes})).double()
    randomise(model)
    return model


@pytest.mark.parametrize("groups", [1, 3, 8])
def test_blocks_may_be_cut_anywhere(groups):
    model = build(parallel_tolerance=TIGHT, parallel_groups=groups).eval()
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


@pytest.mark.parametrize("passes", [1, 2])
def test_fixed_passes_are_for_training(passes, caplog):
    """Evaluation is exact; the log says so, and how much the last pass changed."""
    cuda_graphs.log_once.cache_clear()
    caplog.set_level("WARNING")
    model = build(parallel_passes=passes, parallel_tolerance=TIGHT)
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
    assert logged["parallel_passes"] == passes and logged["parallel_change"] > 0.01
    assert caplog.text.count("training is approximate") == 1
    in_groups = build(parallel_groups=15)
    in_groups(x_TBD)
    assert in_groups.report().logged["parallel_passes"] == 1


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
