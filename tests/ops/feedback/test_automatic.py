"""``--step-loop auto`` takes the preferred loop of each device where that can run; and what agrees with what."""

import pytest
import torch

from fb_fairseq.ops.agreement import TOLERANCES, disagreement
from fb_fairseq.ops.feedback.automatic import AutomaticLoop
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.feedback.torch.loop import BlockRun, TorchLoop, feedback_block_torch
from fb_fairseq.ops.feedback.triton import loop as fused
from fb_fairseq.ops.feedback.triton.loop import TritonLoop
from tests.ops.feedback.cases import Case, compare

RESULT = [[torch.linspace(1, 2, 10), torch.full((3,), 1e-7)], [torch.ones(4)]]


class Preferred(TorchLoop):
    preferred_on = ("cpu",)

    def __init__(self, problem=None):
        self.reason_not, self.blocks = problem, 0

    def why_not(self, inputs):
        return self.reason_not

    def new_run(self, inputs, keep):
        self.blocks += 1
        return BlockRun(keep)


@pytest.mark.parametrize("problem", [None, "it does not run here"])
def test_the_preferred_loop(problem):
    own = Preferred(problem)
    auto, case = AutomaticLoop(lambda: {"torch": TorchLoop(), "own": own}), Case(1)
    compare(case.run(auto.run_block), case.run(feedback_block), 1e-10)
    assert bool(own.blocks) == (problem is None)


def changed(factor, group=0, part=0):
    result = [[x.clone() for x in parts] for parts in RESULT]
    result[group][part] *= factor
    return lambda: result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_agreement(dtype):
    def fail():
        raise TypeError("no such kernel\nmore text")

    wrong, plain = 1 + 2 * TOLERANCES[dtype], changed(1)
    assert disagreement(plain, plain, dtype) is None and disagreement(changed(5, 0, 1), plain, dtype) is None
    assert "differ by" in disagreement(changed(wrong), plain, dtype)
    assert "differ by" in disagreement(changed(wrong, 1), plain, dtype)
    assert disagreement(changed(float("nan")), plain, dtype) == "its results are not finite"
    assert disagreement(fail, plain, dtype) == "failed: no such kernel"
    assert disagreement(plain, changed(float("nan")), dtype) is None


def test_wrong_kernels_are_not_used(monkeypatch, caplog):
    class Wrong(BlockRun):
        def forward(self, inputs):
            out, *rest = super().forward(inputs)
            return (1.5 * out, *rest)

    monkeypatch.setattr(fused, "new_triton_run", Wrong)
    monkeypatch.setattr(TritonLoop, "problem", lambda self, device: None)
    case, loop = Case(1), TritonLoop()
    for _ in range(2):
        compare(case.run(loop.run_block), case.run(feedback_block_torch), 1e-12)
    assert caplog.text.count("its results differ by 0.5; torch's operations run") == 1
