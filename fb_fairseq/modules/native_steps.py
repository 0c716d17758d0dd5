"""Decoding steps in C++, with weights that stay packed as long as the parameters do not change.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fb_fairseq.modules.ring import MemoryRing
from fb_fairseq.ops.feedback.native.library import load
from fb_fairseq.ops.feedback.native.step import NativeStep
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, StepOutput

SAMPLES = 16  # entries of each parameter that are compared at the start of a ring


class NativeSteps:
    """The packed weights of one stack, and its steps that use them.

    They are packed again when a parameter is another tensor than before, or was changed in place. Changes through
    ``parameter.data``, which torch does not count (some optimizers make them), are noticed where a ring starts, by some
    of the parameter's entries.
    """

    def __init__(self):
        self._step: Optional[NativeStep] = None
        self._parameters: List[Tensor] = []
        self._versions: List[Tuple[int, int]] = []
        self._sample: Optional[Tensor] = None

    def __reduce__(self):
        return NativeSteps, ()  # a copy of a model packs its own weights

    def run(
        self, stack, x_BD: Tensor, ring: MemoryRing, options: FeedbackOptions, encoder: Sequence[EncoderContext]
    ) -> Optional[StepOutput]:
        """Run a step and push it to the ring; None where the native step does not cover it, which is then unchanged.

        It covers fp32 on a CPU without gradients, and rings that keep keys and values.

        Args:
            stack: the ``TransformerStack`` that this object belongs to.
        """
        if torch.is_grad_enabled() or x_BD.device.type != "cpu" or x_BD.dtype != torch.float32:
            return None
        if torch.is_autocast_enabled("cpu") or not ring.keeps_rows or not len(x_BD):
            return None
        library = load()
        if library is None:
            return None
        if not self._is_current(stack, ring):
            self._parameters = stack.step_parameters()
            if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in self._parameters):
                return None
            weights = stack.loop_weights(x_BD.device, [ring.span] * len(stack.layers))
            self._step = NativeStep(weights, options, library)
            self._versions, self._sample = versions(self._parameters), sample(self._parameters)
        ring.packed = self._step
        slots = ring.slots_to_write(self._step.sets, len(x_BD), options.heads, self._step.head_dim)
        step = self._step.run(x_BD, slots, options, encoder)
        ring.advance()
        return step

    def _is_current(self, stack, ring: MemoryRing) -> bool:
        """Whether the packed weights are the model's."""
        if self._step is None or self._step.span != ring.span:
            return False
        if ring.packed is self._step:
            return versions(self._parameters) == self._versions
        parameters = stack.step_parameters()
        return versions(parameters) == self._versions and sample(parameters).equal(self._sample)


def versions(parameters: Sequence[Tensor]) -> List[Tuple[int, int]]:
    """Where each parameter lies, and how often it was changed in place."""
    return [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in parameters]


@torch.no_grad()
def sample(parameters: Sequence[Tensor]) -> Tensor:
    """Some entries of each parameter."""
    return torch.cat([p.flatten()[:: max(1, p.numel() // SAMPLES)] for p in parameters])
