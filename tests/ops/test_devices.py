"""Nothing in a block or a step waits for the device, mixes devices, or draws random numbers: so a GPU can replay it.

Tensors on the device "meta" have shapes and types, but no values: reading one fails, as do most operations on tensors
of two devices; ``Watch`` finds the others.
"""

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer
from fb_fairseq.modules.stack import TransformerStack
from fb_fairseq.ops import capturing
from fb_fairseq.ops.feedback.autograd import run_block_with
from fb_fairseq.ops.feedback.cuda_graphs import steps
from fb_fairseq.ops.feedback.cuda_graphs.stepper import StepGraphs
from fb_fairseq.ops.feedback.loops import LOOPS
from fb_fairseq.ops.feedback.passes import ReferencePasses
from tests.modules.options import random_stack
from tests.ops.feedback.cases import KINDS, Case

pytestmark = pytest.mark.usefixtures("meta_device")


class Watch(TorchDispatchMode):
    """Refuses what a CUDA graph refuses."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        tensors = [x for x in pytree.tree_flatten((args, kwargs, result))[0] if torch.is_tensor(x)]
        assert len({x.device.type for x in tensors}) <= 1, f"{operation} crosses devices"
        assert torch.Tag.nondeterministic_seeded not in operation.tags, f"{operation} draws random numbers"
        return result


class Watched(ReferencePasses):
    """The passes of a block, as they would be captured."""

    def forward(self, inputs):
        with Watch():
            return super().forward(inputs)

    def backward(self, d_out_TBD):
        with Watch():
            return super().backward(d_out_TBD)


class WatchedStep:
    """In place of a CUDA graph of a step."""

    made = 0

    def __init__(self, function, before=None):
        WatchedStep.made += 1
        with Watch():
            self.result = function()

    def replay(self):
        """Nothing: there are no values."""


@pytest.fixture(autouse=True)
def spans(monkeypatch):
    """Spans are read once per block, before it starts: a wait that is known."""

    def reaches(self):
        reached = [max(1, min(span.span, 1 + 3 * i)) for i, span in enumerate(self.spans())]
        return reached or [self.options.attention_span] * len(self.layers)

    monkeypatch.setattr(TransformerStack, "reaches", reaches)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_blocks(seed, kind):
    """Gradients have their parameters' types, devices and shapes."""
    with torch.device("meta"):
        case = Case(seed, dtype=(torch.float32, torch.float16)[seed % 2], **KINDS[kind])
    passes_for = lambda inputs, needs_backward: Watched(LOOPS["reference"], needs_backward)
    found = case.run(lambda given: run_block_with(passes_for, given), seed > 1)
    for name, parameter in case.learned.items():
        gradient = found[name]
        assert gradient is None or (gradient.dtype, gradient.device, gradient.shape) == (
            parameter.dtype,
            parameter.device,
            parameter.shape,
        )


@pytest.mark.parametrize("kind", [FeedbackTransformer, RelativeTransformer, AllAttention])
@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_steps(monkeypatch, kind, seed):
    """After a block, whose memory they take over."""
    monkeypatch.setattr(steps, "CudaGraph", WatchedStep)
    monkeypatch.setattr(StepGraphs, "capture_at", 2)
    monkeypatch.setattr(capturing, "_capturing_failed", False)
    monkeypatch.setattr(capturing, "GRAPH_DEVICES", ("meta",))
    with torch.device("meta"):
        model = random_stack(kind, seed, step_loop="triton").eval()
        x_TBD = torch.randn(5, 3, model.options.decoder_embed_dim)
        age_TB = torch.ones(5, 3, dtype=torch.long)
    with Watch():
        _, state = model.run_block(x_TBD, None, age_TB)
    made, ring = WatchedStep.made, model.ring_after(state)
    for x_BD in x_TBD:
        model.run_step(x_BD, ring)
    assert WatchedStep.made > made and not capturing._capturing_failed


def test_nothing_is_captured_after_a_failure(monkeypatch):
    monkeypatch.setattr(capturing, "_capturing_failed", False)
    assert capturing.can_capture(torch.device("cuda")) and not capturing.can_capture(torch.device("cpu"))
    capturing.disable_capturing(RuntimeError("no"))
    assert not capturing.can_capture(torch.device("cuda"))
