"""Decoding steps of fused kernels, as CUDA graphs."""

from functools import partial
from typing import Callable, Sequence

from torch import Tensor

from fb_fairseq.ops import fallbacks
from fb_fairseq.ops.feedback.decoding.ring import MemoryRing
from fb_fairseq.ops.feedback.decoding.stepper import StepModel
from fb_fairseq.ops.feedback.decoding.storage import KeyValueStorage
from fb_fairseq.ops.feedback.graph.stepper import GraphStepper
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, StepOutput


class FusedStepper(GraphStepper):
    """The captured steps of a model, of fused kernels where these cover them."""

    name = "fused"

    def step_of(self, model: StepModel) -> Callable[..., StepOutput]:
        """See ``GraphStepper.step_of``."""
        return partial(captured_step, model)


def captured_step(
    model: StepModel, x_BD: Tensor, ring: MemoryRing, options: FeedbackOptions, encoder: Sequence[EncoderContext] = ()
) -> StepOutput:
    """A step that is captured: of fused kernels, or where they do not cover it, of torch's operations."""
    covered = (
        model.plain_layers
        and isinstance(ring.storage, KeyValueStorage)
        and x_BD.device.type in fallbacks.KERNEL_DEVICES
        and fallbacks.problem_of_kernels(x_BD.device.type) is None
        and all(parameter.dtype == x_BD.dtype == ring.buffer.dtype for parameter in model.step_parameters())
    )
    if not covered:
        return model.plain_step(x_BD, ring, options, encoder)
    from fb_fairseq.ops.feedback.fused.steps import StepBlock

    return StepBlock(model.step_weights(ring, x_BD.device), x_BD, ring, options, encoder).step()
