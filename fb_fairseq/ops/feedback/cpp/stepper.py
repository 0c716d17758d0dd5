"""Decoding steps in C++, with weights that stay packed as long as the parameters do not change.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from fb_fairseq.ops.feedback.cpp.library import load
from fb_fairseq.ops.feedback.cpp.step import CppStep, RingSlots
from fb_fairseq.ops.feedback.decoding.ring import MemoryRing, SlotHolder
from fb_fairseq.ops.feedback.decoding.stepper import StepModel
from fb_fairseq.ops.feedback.decoding.storage import KeyValueStorage
from fb_fairseq.ops.feedback.types import StepOutput
from fb_fairseq.ops.layers import has_modules

LANES = 1024  # numbers of 64 bits in a row of what a checksum adds up


class CppSlots(SlotHolder):
    """A ring's slots between steps in C++: reordered streams look at each other's slots, and nothing is copied.

    Each step of a stream is in a slot of its own number, so no stream writes what another one looks at.

    Args:
        weights: the packed weights that the ring's last step was run with.

    Attributes:
        origin_BC: the stream (int32) whose slot a stream looks at; None: its own.
    """

    def __init__(self, weights: CppStep):
        self.weights = weights
        self.origin_BC: Optional[Tensor] = None

    def reorder(self, ring: MemoryRing, order: Tensor) -> bool:
        """See ``SlotHolder``."""
        streams = ring.buffer.shape[1]
        if len(order) > streams:
            return False
        if self.origin_BC is None:
            self.origin_BC = torch.arange(streams, dtype=torch.int32)[:, None].repeat(1, ring.slots)
        self.origin_BC = self.origin_BC[order]
        return True

    def grow(self, ring: MemoryRing, slots: int) -> bool:
        """See ``SlotHolder``."""
        if self.origin_BC is not None:
            self.origin_BC = pad(self.origin_BC, (0, slots - ring.position))
        return True

    def settle(self, ring: MemoryRing) -> None:
        """See ``SlotHolder``. The next step in C++ compares the weights again."""
        ring.release()

    def release(self, ring: MemoryRing) -> None:
        """See ``SlotHolder``: copy the slots that a lazy reorder left with other streams."""
        if self.origin_BC is None:
            return
        old, used = ring.buffer, ring.used
        origin_B1C, heads_H1 = self.origin_BC[:, None, :used].long(), torch.arange(old.shape[2])[:, None]
        new = old.new_zeros(len(old), len(origin_B1C), *old.shape[2:])
        new[..., :used, :] = old[:, origin_B1C, heads_H1, torch.arange(used)]
        ring.replace_buffer(new)


class PackedSteps:
    """The packed weights of one model, and its steps that use them.

    They are packed again when a parameter is another tensor than before, or was changed in place. Changes through
    ``parameter.data``, which torch does not count (some optimizers make them), are noticed where a ring starts, by
    checksums, which take less time than a step.
    """

    def __init__(self):
        self._weights: Optional[CppStep] = None
        self._parameters: List[Tensor] = []
        self._versions: List[Tuple[int, int]] = []
        self._sums: List[Tensor] = []

    def step(self, model: StepModel, x_BD: Tensor, ring: MemoryRing, options, encoder) -> Optional[StepOutput]:
        """See ``Loop.decoding_step``; None where steps in C++ do not cover this one."""
        weights = self._weights_for(model, x_BD, ring, options)
        if weights is None:
            return None
        if ring.buffer is None:
            ring.buffer = torch.zeros(2 * weights.sets, len(x_BD), options.heads, ring.slots, weights.head_dim)
        if not isinstance(ring.holder, CppSlots):
            ring.release()
            ring.holder = CppSlots(weights)
        ring.holder.weights = weights
        slots = RingSlots(ring.buffer, ring.holder.origin_BC, ring.age_B, ring.position, ring.span)
        return weights.run(x_BD, slots, options, encoder)

    def _weights_for(self, model: StepModel, x_BD: Tensor, ring: MemoryRing, options) -> Optional[CppStep]:
        """The packed weights; None where steps in C++ do not cover this one.

        They cover fp32 on a CPU without gradients, and rings that keep keys and values.
        """
        if torch.is_grad_enabled() or x_BD.device.type != "cpu" or x_BD.dtype != torch.float32 or not len(x_BD):
            return None
        if torch.is_autocast_enabled("cpu") or not model.plain_layers or not keeps_rows(ring):
            return None
        library = load().library
        if not self._is_current(model, ring):
            self._parameters = model.step_parameters()
            if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in self._parameters):
                return None
            weights = model.step_weights(ring, x_BD.device)
            if has_modules(weights):
                return None
            self._weights = CppStep(weights, options, library)
            self._versions, self._sums = versions(self._parameters), checksums(self._parameters)
        return self._weights

    def _is_current(self, model: StepModel, ring: MemoryRing) -> bool:
        """Whether the packed weights are the model's."""
        if self._weights is None or self._weights.span != ring.span:
            return False
        if isinstance(ring.holder, CppSlots) and ring.holder.weights is self._weights:
            return versions(self._parameters) == self._versions
        parameters = model.step_parameters()
        if versions(parameters) != self._versions or not model.fixed_weights():
            return False
        return all(a.equal(b) for a, b in zip(checksums(parameters), self._sums))


def keeps_rows(ring: MemoryRing) -> bool:
    """Whether steps in C++ can work on a ring's slots: keys and values in fp32 on a CPU."""
    if not isinstance(ring.storage, KeyValueStorage):
        return False
    return ring.buffer is None or (ring.buffer.dtype == torch.float32 and ring.buffer.device.type == "cpu")


def versions(parameters: Sequence[Tensor]) -> List[Tuple[int, int]]:
    """Where each parameter lies, and how often it was changed in place."""
    return [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in parameters]


@torch.no_grad()
def checksums(parameters: Sequence[Tensor]) -> List[Tensor]:
    """Sums of the parameters' bits by row and by column, of rows of ``LANES`` numbers, and what is left of them. One
    changed entry changes them in any case, and entries that change places change one of them. (Quantised parameters
    have none, and need none: ``fixed_weights``.)"""
    found = []
    for parameter in (p for p in parameters if not is_traceable_wrapper_subclass(p)):
        bits = parameter.reshape(-1).view(torch.int32)
        whole = bits[: len(bits) // (2 * LANES) * (2 * LANES)].view(torch.int64).view(-1, LANES)
        found += [whole.sum(0), whole.sum(1)] if len(whole) else []
        found.append(bits[2 * whole.numel() :].clone())
    return found
