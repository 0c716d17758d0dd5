"""Finds the captured step for a decoding step, or captures one."""

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fb_fairseq.ops import cuda_graphs
from fb_fairseq.ops.agreement import in_fp32
from fb_fairseq.ops.captures import Captures, Setting
from fb_fairseq.ops.feedback.cuda_graphs.steps import CapturedStep, step_key
from fb_fairseq.ops.feedback.loop import Loop
from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, StepOutput


class StepGraphs(Captures, threading.local):
    """The captured steps of a model. Each thread has its own: several would overwrite each other's results.

    A capture takes as long as some steps, and holds the slots of a ring.
    """

    capture_at, kept = 8, 8

    def __init__(self):
        super().__init__()
        self._parameters: list[Tensor] = []
        self._pointers: list[int] = []

    def run(
        self,
        loop: Loop,
        packed: dict[str, Any],
        stack: Any,
        x_BD: Tensor,
        ring: MemoryRing,
        options: FeedbackOptions,
        encoder: Sequence[EncoderContext],
    ) -> StepOutput | None:
        """Run a step as a graph; None: it has none. See ``Loop.decode``."""
        if not cuda_graphs.can_capture(x_BD.device):
            return None
        if torch.is_grad_enabled():
            ring.release()  # the slots may need a gradient from now on
            return None
        # Autocast keeps casts of weights to itself, and drops them when it ends.
        if torch.is_autocast_enabled(x_BD.device.type) or ring.buffer is None or not len(x_BD):
            return None
        if ring.graph is None and not stack.has_plain_weights():
            return None
        self._forget_if_moved(stack, ring)
        key = step_key(x_BD, ring, options, encoder)
        setting = (f"{loop.name}, decoding steps",)

        def capture(kernels: bool) -> CapturedStep | None:
            if not kernels:
                step = stack.reference_step
            elif loop.covers_step(stack, x_BD, ring):
                step = partial(loop.decode, stack, packed)
            else:
                return None
            return CapturedStep(step, x_BD, ring, options, encoder)

        is_right = partial(self._is_right, setting, stack, x_BD, ring, options, encoder)
        found = self.find(key, setting, capture, is_right)
        if found is None:
            return None
        if ring.graph is not found:
            found.hold(ring)
        return found.run(ring, x_BD, encoder)

    def _is_right(self, setting: Setting, stack, x_BD: Tensor, ring: MemoryRing, options, encoder, found) -> bool:
        """Compare a captured step's results with those of torch's operations."""
        exact = None
        if x_BD.dtype.itemsize < torch.float32.itemsize:
            weights = in_fp32(stack.step_weights(ring, x_BD.device))
            given = x_BD.float(), ring, options, in_fp32(list(encoder)), weights
            exact = partial(reference_results, stack, *given)
        own = partial(found.try_on, ring, x_BD, encoder)
        reference = partial(reference_results, stack, x_BD, ring, options, encoder)
        return self.agrees(setting, own, reference, x_BD.dtype, exact)

    def _forget_if_moved(self, stack, ring: MemoryRing) -> None:
        """Drop all captures if parameters are elsewhere in memory than when they were made."""
        if ring.graph is None:  # (takes much longer than the rest)
            self._parameters = stack.step_parameters()
        pointers = [parameter.data_ptr() for parameter in self._parameters]
        if pointers != self._pointers:
            self.clear()
            self._pointers = pointers


def reference_results(stack, x_BD: Tensor, ring: MemoryRing, options, encoder, weights=None) -> list:
    """A step's output and memories by torch's operations, and the slots after it, for a ring that stays as it is."""
    own = ring.copy_for(len(x_BD), MemoryRing(ring.span))
    own.buffer = own.buffer.to(x_BD.dtype)
    own.copy_rows(ring)
    result = stack.reference_step(x_BD, own, options, encoder, weights)
    return [[result.out_BD, result.memory_KBD, own.buffer]]
