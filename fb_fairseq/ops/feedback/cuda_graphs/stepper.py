"""Finds the captured step for a decoding step, or captures one."""

import threading
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fb_fairseq.ops import capturing
from fb_fairseq.ops.agreement import in_fp32
from fb_fairseq.ops.captures import Captures, Comparison, modes_of_products
from fb_fairseq.ops.feedback.cuda_graphs.padding import SOURCE_MULTIPLE, hypotheses, padded_rows, round_up
from fb_fairseq.ops.feedback.cuda_graphs.steps import CapturedStep
from fb_fairseq.ops.feedback.loop import Loop
from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.step_inputs import StepInputs
from fb_fairseq.ops.feedback.types import FeedbackWeights, StepOutput


class StepGraphs(Captures, threading.local):
    """The captured steps of a model. Each thread has its own: several would overwrite each other's results.

    A capture takes as long as some steps, and holds the slots of a ring.
    """

    capture_at, kept = 8, 8

    def __init__(self):
        super().__init__()
        self._parameters: list[Tensor] = []
        self._pointers: list[int] = []

    def run(self, loop: Loop, kept: dict[str, Any], stack: Any, inputs: StepInputs) -> StepOutput | None:
        """Run a step as a graph; None: it has none. See ``Loop.decode``."""
        x_BD, ring = inputs.x_BD, inputs.ring
        if not capturing.can_capture(x_BD.device):
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
        key = step_key(inputs)
        setting = (f"{loop.name}, decoding steps",)

        def kernels() -> CapturedStep | None:
            covered = loop.covers_step(stack, inputs)
            return CapturedStep(partial(loop.decode, stack, kept), inputs) if covered else None

        operations = partial(CapturedStep, stack.reference_step, inputs)
        found = self.find(
            key, setting, kernels=kernels, operations=operations, comparison=partial(comparison, stack, inputs)
        )
        if found is None:
            return None
        if ring.graph is not found:
            found.hold(ring)
        return found.run(inputs)

    def _forget_if_moved(self, stack: Any, ring: MemoryRing) -> None:
        """Drop all captures if parameters are elsewhere in memory than when they were made."""
        if ring.graph is None:  # (takes much longer than the rest)
            self._parameters = stack.step_parameters()
        pointers = [parameter.data_ptr() for parameter in self._parameters]
        if pointers != self._pointers:
            self.clear()
            self._pointers = pointers


def step_key(inputs: StepInputs) -> tuple:
    """Everything that a captured step depends on, except the values of tensors."""
    x_BD, ring, options, encoder = inputs
    source = None
    if encoder:
        keys = encoder[0].keys_CBHE
        source = (round_up(keys.shape[0], SOURCE_MULTIPLE), keys.dtype, hypotheses(len(x_BD), encoder))
    rows = padded_rows(len(x_BD), encoder)
    b = ring.buffer
    slots = (ring.span, ring.storage, b.shape[0], *b.shape[2:], b.dtype, ring.age_B is not None)
    return (rows, x_BD.dtype, x_BD.device, options, source, *modes_of_products(), *slots)


def comparison(stack: Any, inputs: StepInputs, found: CapturedStep) -> Comparison:
    """The results of a captured step, and of torch's operations."""
    x_BD = inputs.x_BD
    exact = None
    if x_BD.dtype.itemsize < torch.float32.itemsize:
        weights = in_fp32(stack.step_weights(inputs.ring, x_BD.device))
        wide = inputs._replace(x_BD=x_BD.float(), encoder=in_fp32(list(inputs.encoder)))
        exact = partial(reference_results, stack, wide, weights)
    return Comparison(partial(found.try_on, inputs), partial(reference_results, stack, inputs), x_BD.dtype, exact)


def reference_results(stack: Any, inputs: StepInputs, weights: FeedbackWeights | None = None) -> list[list[Tensor]]:
    """A step's output and memories by torch's operations, and the slots after it, for a ring that stays as it is.
    ``weights``: None: the model's.
    """
    x_BD, ring = inputs.x_BD, inputs.ring
    ring.settle()
    own = MemoryRing(ring.span, ring.storage)
    own.slots, own.position = ring.slots, ring.position
    own.buffer = ring.buffer.to(x_BD.dtype, copy=True)
    own.age_B = ring.age_B
    result = stack.reference_step(inputs._replace(ring=own), weights)
    return [[result.out_BD, result.memory_KBD, own.buffer]]
