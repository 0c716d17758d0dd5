"""Kernels are compared with torch's operations as they will be replayed, and not used where they are wrong.

(Torch's operations, spoiled or not, stand in for kernels.)
"""

import pytest
import torch

from fb_fairseq.ops import captures, capturing
from fb_fairseq.ops.feedback.cuda_graphs import passes
from fb_fairseq.ops.feedback.loops import ReferenceLoop
from fb_fairseq.ops.feedback.passes import ReferencePasses
from fb_fairseq.ops.feedback.reference import feedback_block
from tests.ops.feedback.captured import CAPTURE_AT, GraphLoop, graphs_on_cpu, small
from tests.ops.feedback.cases import Case, compare


@pytest.fixture
def graphs(monkeypatch):
    capturing.log_once.cache_clear()
    return graphs_on_cpu(monkeypatch)


class Spoiled(ReferencePasses):
    """The passes of ``Kernels``."""

    def forward(self, inputs):
        self.loop.blocks += 1
        results = super().forward(inputs)
        self.loop.spoil_results(*results)
        return results

    def backward(self, d_out_TBD):
        gradients = super().backward(d_out_TBD)
        self.loop.spoil_gradients(gradients)
        return gradients


class Kernels(ReferenceLoop):
    """Torch's operations, whose results are then spoiled.

    Attributes:
        spoil_results: changes a block's outputs and memories in place.
        spoil_gradients: changes a block's gradients in place.
        blocks: how many forward passes were computed or captured.
    """

    as_graphs = True
    passes_class = Spoiled

    def __init__(self, spoil_results=lambda *_: None, spoil_gradients=lambda _: None):
        self.spoil_results, self.spoil_gradients, self.blocks = spoil_results, spoil_gradients, 0


def fail(*_):
    raise TypeError("no such kernel\nmore text")


def out_of_memory(*_):
    raise torch.cuda.OutOfMemoryError


# Kernels by what they do, and what is logged of them.
KERNELS = {
    "right": (Kernels(), None),
    "does not compile": (Kernels(fail), "failed: no such kernel"),
    "wrong output": (Kernels(lambda out_TBD, memory_KTBD: out_TBD.mul_(1.1)), "its results differ by 0.1"),
    "wrong memory": (Kernels(lambda out_TBD, memory_KTBD: memory_KTBD.mul_(1.1)), "its results differ by 0.1"),
    "wrong gradient": (
        Kernels(spoil_gradients=lambda gradients: gradients.weights.layers[0].fc1.weight.mul_(1.1)),
        "its results differ by",
    ),
}


@pytest.mark.parametrize("kernels,problem", KERNELS.values(), ids=KERNELS)
def test_kernels_are_compared_with_torch(graphs, caplog, kernels, problem):
    """Wrong ones are named once and not used: torch's operations are captured in their place."""
    loop = GraphLoop(graphs, kernels)
    case = small(dtype=torch.float32)
    expected = case.run(feedback_block)
    for _ in range(CAPTURE_AT + 2):
        compare(case.run(loop), expected, 2e-5)
    assert loop.captured and (loop.captured_loop is kernels) == (problem is None)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == (problem is not None) and all(problem in line and "more text" not in line for line in lines)
    before = kernels.blocks
    for steps in (4, 5):
        other = small(dtype=torch.float32, steps=steps)
        compare(other.run(loop), other.run(feedback_block), 2e-5)
    assert (kernels.blocks > before) == (problem is None), "without a graph kernel by kernel, if that is right"


def test_the_replay_is_compared(graphs, monkeypatch, caplog):
    """A graph that computes something else than what was captured."""
    loop = GraphLoop(graphs, Kernels())
    case = small()
    case.run(loop)
    make = passes.CapturedPasses.__init__

    def made(self, *arguments):
        make(self, *arguments)
        if self.passes.loop.as_graphs:
            self.own[0] = torch.zeros_like(self.own[0])  # not what the graph reads
            self.own_inputs.x_TBD.zero_()

    monkeypatch.setattr(passes.CapturedPasses, "__init__", made)
    compare(case.run(loop), case.run(feedback_block), 1e-10)
    assert "its results differ by" in caplog.text and loop.captured


def test_kernels_found_wrong_later(graphs):
    """On other lengths; from then on they run nowhere, captured or not."""
    kernels = Kernels(lambda out_TBD, memory_KTBD: out_TBD.mul_(1.1 if len(out_TBD) == 4 else 1))
    loop = GraphLoop(graphs, kernels)
    first, other = small(steps=3), small(steps=4)
    for case, by_kernels in ((first, True), (other, False), (first, False)):
        for _ in range(CAPTURE_AT):
            case.run(loop)
        assert loop.captured and (loop.captured_loop is kernels) == by_kernels


def test_other_kinds_of_blocks_are_compared_too(graphs):
    """Kernels that are right without adaptive spans, say, may be wrong with them, in a block of the same sizes."""
    for adaptive_span in (False, True):
        Case(2, adaptive_span=adaptive_span).run(GraphLoop(graphs, Kernels()))
    assert len(graphs.problems) == 2


def undecided(found):
    """A comparison that says nothing."""
    return captures.Comparison(list, out_of_memory, torch.float32, None)


def test_undecided_captures_stay_for_a_window():
    """Two keys alternate, of which one has room."""

    class Captures(captures.Captures):
        capture_at, kept, window = 1, 1, 10

    made = []

    def capture():
        made.append(captures.Captured())
        return made[-1]

    found = Captures()
    for use in range(40):
        found.find((use % 2,), ("loop",), kernels=capture, operations=capture, comparison=undecided)
    assert len(made) == 4


def test_captures_in_use_are_made_again_at_once():
    """After their memory was given back."""

    class Captures(captures.Captures):
        capture_at, kept, window = 3, 1, 5

    found = Captures()
    used = lambda: (
        found.find((), (), kernels=lambda: None, operations=captures.Captured, comparison=undecided) is not None
    )
    assert [used() for _ in range(8)] == [False, False] + 6 * [True]
    found.clear()
    assert used()


def test_a_nan_is_no_verdict(graphs, caplog):
    """The next block is compared."""
    kernels = Kernels()
    case = small()
    loop = GraphLoop(graphs, kernels)
    with torch.no_grad():
        good = case.learned["input"].clone()
        case.learned["input"].fill_(float("nan"))
    for _ in range(3):
        case.run(loop)
        assert not loop.captured
    with torch.no_grad():
        case.learned["input"].copy_(good)
    compare(case.run(loop), case.run(feedback_block), 1e-10)
    assert loop.captured and loop.captured_loop is kernels and not caplog.records


def test_short_memory_is_no_verdict(graphs):
    """Neither in comparing kernels nor in capturing them."""
    for _ in range(CAPTURE_AT):
        small().run(GraphLoop(graphs, Kernels(out_of_memory)))
    assert not graphs.problems


def test_half_precision_is_compared_with_fp32(graphs, monkeypatch):
    """Twice: a first block, which runs kernel by kernel, then the capture; fp32 itself needs nothing more exact."""
    seen = []
    original = captures.disagreement

    def watched(run, reference, dtype, exact):
        seen.append(exact)
        return original(run, reference, dtype, exact)

    monkeypatch.setattr(captures, "disagreement", watched)
    for dtype in (torch.bfloat16, torch.float32):
        case = small(dtype=dtype)
        loop = GraphLoop(graphs, Kernels())
        for _ in range(2):
            case.run(loop)
        assert loop.captured
    assert [exact is not None for exact in seen] == [True, True, False, False]
    with torch.no_grad():
        assert all(x.dtype == torch.float32 for group in seen[0]() for x in passes.tensors(group))
