"""``--step-loop auto`` on a GPU, with stand-ins: a CPU that can capture; torch's products in place of the kernels."""

import gc
import weakref

import pytest
import torch

from fb_fairseq.ops import fallbacks, trials
from fb_fairseq.ops.cuda_graph import CaptureError
from fb_fairseq.ops.feedback.automatic import loop as automatic
from fb_fairseq.ops.feedback.automatic.loop import AutomaticLoop
from fb_fairseq.ops.feedback.fast import forward
from fb_fairseq.ops.feedback.fast.loop import BlockRun, FastLoop, feedback_block_fast
from fb_fairseq.ops.feedback.graph import blocks
from fb_fairseq.ops.feedback.graph.blocks import GraphRun
from fb_fairseq.ops.feedback.graph.loop import GraphLoop
from fb_fairseq.ops.feedback.reference import feedback_block
from tests.ops.feedback.cases import Case, compare
from tests.ops.recorded_graph import RecordedGraph, capture_on_cpu, change_limits

TRY_AT = 3


@pytest.fixture
def loop(monkeypatch):
    """The fast loop with automatic choice; its attribute ``chosen`` says what ran the last block."""
    capture_on_cpu(monkeypatch, blocks, blocks, capture_at=1)
    monkeypatch.setattr(fallbacks, "have_kernels", lambda device: True)
    monkeypatch.setattr(forward, "attention_kernels", lambda kind, device: None)
    monkeypatch.setattr(automatic, "TRY_AT", TRY_AT)
    graph_loop = GraphLoop()
    fastest = AutomaticLoop(lambda: {"fast": FastLoop(), "graph": graph_loop})

    def run(*arguments):
        def choose(inputs, keep):
            run.chosen = fastest.choose_run(inputs, keep)
            return run.chosen

        return feedback_block_fast(*arguments, choose_run=choose)

    run.fastest, run.graphs = fastest, graph_loop.graphs
    return run


@pytest.fixture
def speeds(monkeypatch):
    """Made-up milliseconds of the candidates, in their order: fast, fast+triton, graph, graph+triton."""
    made_up = [4.0, 3.0, 2.0, 1.0]
    rest = []

    def milliseconds(run, device):
        run()
        if not rest:
            rest.extend(made_up)
        return rest.pop(0)

    monkeypatch.setattr(trials, "milliseconds", milliseconds)
    return made_up


def small(**changes):
    return Case(
        2, adaptive_span=False, decoder_layers=2, memory_composition="weighted", memory_projections="shared", **changes
    )


def description(run):
    kernel = run.own_inputs.options.kernel if isinstance(run, GraphRun) else run.kernel
    return type(run).__name__, kernel


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_results_stay_the_same(loop, speeds, seed, recompute):
    case = Case(seed, cross=seed % 3 == 0, resets=seed % 4 == 0)
    plain = case.run(feedback_block, recompute)
    for _ in range(TRY_AT + 2):
        compare(case.run(loop, recompute), plain, 1e-10)
    assert description(loop.chosen) == ("GraphRun", "triton")


def test_the_fastest_is_taken_after_some_blocks(loop, speeds, caplog):
    caplog.set_level("INFO")
    case, seen = small(), []
    for _ in range(TRY_AT + 1):
        case.run(loop)
        seen.append(description(loop.chosen))
    assert seen == [("BlockRun", "torch")] * (TRY_AT - 1) + [("GraphRun", "triton")] * 2
    (line,) = [record.getMessage() for record in caplog.records if "auto" in record.getMessage()]
    assert line == ("step loop auto, training, per block: graph+triton 1 ms; graph 2 ms; fast+triton 3 ms; fast 4 ms")
    with torch.no_grad():
        for _ in range(TRY_AT):
            case.forward(loop)
    assert "step loop auto, evaluation, per block: graph+triton" in caplog.text


def test_rare_shapes_run_without_a_graph(loop, speeds, monkeypatch):
    change_limits(monkeypatch, blocks, capture_at=5)
    for case in (small(), small(steps=4)):
        for _ in range(TRY_AT):
            case.run(loop)
    assert description(loop.chosen) == ("BlockRun", "triton"), "the fastest without a graph"


def test_the_fast_loop_where_it_is_fastest(loop, speeds):
    speeds[:] = [1.0, 2.0, 3.0, 4.0]
    case = small()
    for _ in range(TRY_AT):
        case.run(loop)
    assert description(loop.chosen) == ("BlockRun", "torch")


def test_wrong_results_are_left_out(loop, speeds, caplog, monkeypatch):
    """A graph that returns something else, and one that cannot be captured."""
    caplog.set_level("INFO")
    replay = RecordedGraph.replay

    def wrong(self):
        replay(self)
        for x in trials.tensors(self.result):
            if x.is_floating_point():
                x.mul_(1.1)

    monkeypatch.setattr(RecordedGraph, "replay", wrong)
    case = small()
    plain = case.run(feedback_block)
    for _ in range(TRY_AT + 1):
        compare(case.run(loop), plain, 1e-10)
    assert description(loop.chosen) == ("BlockRun", "triton")
    assert "graph left out: its results differ by 0.1; graph+triton left out" in caplog.text


@pytest.mark.parametrize("error", [RuntimeError, CaptureError, TypeError])
def test_failures_are_left_out(loop, speeds, caplog, monkeypatch, error):
    caplog.set_level("INFO")

    def fail(function, before=None):
        raise error("out of memory")

    monkeypatch.setattr(blocks, "CudaGraph", fail)
    case = small()
    plain = case.run(feedback_block)
    for _ in range(TRY_AT + 1):
        compare(case.run(loop), plain, 1e-10)
    assert isinstance(loop.chosen, BlockRun) and "graph left out: failed: out of memory" in caplog.text
    assert not loop.graphs.cache.graphs
    assert caplog.text.count("capturing failed") == (error is CaptureError)


def test_a_trial_keeps_one_record(loop, speeds, monkeypatch):
    """Of activations: two would not fit where one hardly does."""
    alive, most = weakref.WeakSet(), []
    make = forward.Record.__init__

    def counted(self, *arguments):
        make(self, *arguments)
        alive.add(self)
        gc.collect()
        most.append(len(alive))

    monkeypatch.setattr(forward.Record, "__init__", counted)
    speeds[:] = [1.0, 2.0, 3.0, 4.0]
    monkeypatch.setattr(blocks, "CudaGraph", None)  # fails
    case = small()
    for _ in range(TRY_AT):
        loop.chosen = None  # with its record
        case.run(loop)
    assert max(most) == 1


def test_trials_are_repeated_after_a_nan(loop, speeds, caplog):
    caplog.set_level("INFO")
    case = small()
    with torch.no_grad():
        good = case.learned["input"].clone()
        case.learned["input"].fill_(float("nan"))
    for _ in range(TRY_AT):
        case.run(loop)
    assert "no choice was made, fast its results are not finite" in caplog.text
    with torch.no_grad():
        case.learned["input"].copy_(good)
    for _ in range(TRY_AT):
        case.run(loop)
    assert description(loop.chosen) == ("GraphRun", "triton")


def test_a_choice_holds_for_other_lengths(loop, speeds):
    for steps in (3, 4, 5):
        small(steps=steps).run(loop)
    assert len(loop.fastest.rankings) == 1
    small(dtype=torch.float32).run(loop)
    assert len(loop.fastest.rankings) == 1 and len(loop.fastest.blocks) == 2, "another type has a choice of its own"


def test_half_precision_is_compared_with_fp32(loop, speeds, monkeypatch):
    seen = []
    ranking = automatic.ranking
    monkeypatch.setattr(automatic, "ranking", lambda *a: seen.append(a[4]) or ranking(*a))
    for dtype in (torch.bfloat16, torch.float32):
        case = small(dtype=dtype)
        for _ in range(TRY_AT):
            case.run(loop)
    assert [exact is not None for exact in seen] == [True, False]
    with torch.no_grad():
        assert all(x.dtype == torch.float32 for group in seen[0]()() for x in trials.tensors(group))
