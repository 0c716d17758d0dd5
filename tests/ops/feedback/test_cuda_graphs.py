"""Captured blocks equal the reference loop from the first replay on, are held until their backward pass, and are few.

These tests need no GPU: ``RecordedGraph`` stands in for CUDA graphs and replays recorded operations on the same memory.
"""

import pytest
import torch

from fb_fairseq.ops import capturing
from fb_fairseq.ops.feedback.cuda_graphs.blocks import BlockGraphs
from fb_fairseq.ops.feedback.passes import ReferencePasses
from fb_fairseq.ops.feedback.reference import feedback_block
from tests.ops.feedback.captured import CAPTURE_AT, GraphLoop, graphs_on_cpu, small
from tests.ops.feedback.cases import Case, compare, reference_passes


@pytest.fixture
def graphs(monkeypatch):
    return graphs_on_cpu(monkeypatch)


def warm(case, loop, recompute=False):
    """Run a block often enough to be captured."""
    for _ in range(CAPTURE_AT):
        case.run(loop, recompute)
    assert loop.captured


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_equals_the_plain_twin_on_other_values(graphs, seed, recompute):
    """Weights, inputs, masks and memory change after the capture."""
    settings = {"carried": [0, 50][seed % 2], "cross": seed % 3 == 0, "resets": seed % 4 == 0}
    case = Case(seed, **settings)
    loop = GraphLoop(graphs)
    warm(case, loop, recompute)
    other = Case(seed, **settings)
    torch.manual_seed(seed + 1000)
    with torch.no_grad():
        for parameter in other.learned.values():
            parameter.add_(0.1 * torch.randn_like(parameter))
        other.memory.normal_()
    other.dropouts = other.model.draw_dropouts(other.x, other.options.attention_span, other.encoder)
    compare(other.run(loop, recompute), other.run(feedback_block, recompute), 1e-10)
    assert loop.captured


def test_a_block_holds_its_graph_until_its_backward_pass(graphs):
    case = small()
    loop = GraphLoop(graphs)
    warm(case, loop)
    expected = case.run(reference_passes)
    first = case.forward(loop)[0]
    assert loop.captured
    with torch.no_grad():
        other = 2 * case.x
    second = case.forward(loop, x=other.requires_grad_())[0]
    assert not loop.captured, "its activations would be lost"
    case.clear()
    (first * case.d_out).sum().backward(retain_graph=True)
    compare(case.gradients(), {name: g for name, g in expected.items() if name in case.learned}, 1e-12)
    case.forward(loop)
    assert not loop.captured, "its backward pass may run again"
    (first * case.d_out).sum().backward()
    for name, gradient in case.gradients().items():
        torch.testing.assert_close(gradient, 2 * expected[name])
    case.forward(loop)
    assert loop.captured, "though the block's output is still there"
    case.forward(loop)
    assert loop.captured, "a block that is gone has no backward pass"
    del second


def test_results_are_not_overwritten(graphs):
    """Outputs, memories and gradients stay as they are in the next replay."""
    case = small()
    loop = GraphLoop(graphs)
    warm(case, loop)
    one = case.run(loop)
    kept = {name: x.clone() for name, x in one.items() if x is not None}
    case.learned["input"].data.mul_(3)
    case.run(loop)
    assert loop.captured and all(one[name].equal(x) for name, x in kept.items())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(graphs, mode):
    """A graph that is made in inference mode runs outside of it, too."""
    case = small(cross=True)
    loop = GraphLoop(graphs)
    with mode():
        for _ in range(CAPTURE_AT + 1):
            case.forward(loop)
        assert loop.captured
    with torch.no_grad():
        compare(case.results(loop), case.results(feedback_block), 1e-12)
    assert loop.captured


def test_bounded_in_number(graphs, monkeypatch):
    """A graph is dropped for another one if it was not used for a while and is not held."""
    monkeypatch.setattr(BlockGraphs, "kept", 2)
    monkeypatch.setattr(BlockGraphs, "window", 20)
    loop = GraphLoop(graphs)
    cases = [small(steps=steps) for steps in (2, 3, 4)]

    def steps():
        return [run.own_inputs.x_TBD.shape[0] for run in graphs.by_key.values()]

    for case in cases[:2]:
        warm(case, loop)
    for _ in range(8):  # alternating shapes do not drop a graph
        for case in cases:
            case.run(loop)
    assert steps() == [2, 3] and not loop.captured
    held = cases[0].forward(loop)[0]
    for _ in range(30):
        cases[2].run(loop)
    assert steps() == [2, 4], "the first is held"
    del held
    graphs.clear()
    assert not graphs.by_key


def test_rare_shapes_are_not_captured(graphs, monkeypatch):
    monkeypatch.setattr(BlockGraphs, "window", 10)
    loop = GraphLoop(graphs)
    often = small(carried=0)
    rare = small(carried=0, steps=4)
    for _ in range(10):
        for _ in range(5):
            often.run(loop)
        rare.run(loop)
        assert not loop.captured
    assert len(graphs.by_key) == 1


@pytest.mark.parametrize("gpu", [True, False])
def test_what_cannot_be_captured_runs_operation_by_operation(graphs, gpu, monkeypatch, caplog):
    """Which is logged once."""
    run = ReferencePasses.forward
    monkeypatch.setattr(
        ReferencePasses, "forward", lambda self, inputs: (inputs.x_TBD.sum().item(), run(self, inputs))[1]
    )
    monkeypatch.setattr(capturing, "GRAPH_DEVICES", ("cpu",) if gpu else ("cuda",))
    case = small()
    loop = GraphLoop(graphs)
    plain = case.run(feedback_block)
    for _ in range(CAPTURE_AT + 2):
        compare(case.run(loop), plain, 1e-10)
        assert not loop.captured
    expected = "not permitted when stream is capturing" if gpu else "CUDA graphs need a GPU"
    assert caplog.text.count(expected) == 1 and caplog.text.count("capturing failed") == gpu


@pytest.mark.parametrize("carried,captured_at", [(0, CAPTURE_AT), (3, None), (7, 2)])
def test_memories_between_empty_and_full_are_not_captured(graphs, carried, captured_at):
    """They come once per epoch; a full memory comes again and again, and is captured at once."""
    case = Case(2, steps=3, carried=carried, attention_span=7, adaptive_span=False)
    loop = GraphLoop(graphs)
    found = []
    for _ in range(CAPTURE_AT):
        case.run(loop)
        found.append(loop.captured)
    assert found == [captured_at is not None and block >= captured_at for block in range(1, CAPTURE_AT + 1)]
