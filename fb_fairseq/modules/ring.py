"""The memory of decoding step by step: a ring of slots for the last S steps.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from contextlib import contextmanager
from typing import Iterator, List, Optional

import torch
from torch import Tensor

from fb_fairseq.modules.interface import StepMemory
from fb_fairseq.modules.step_graph import StepGraph
from fb_fairseq.ops.feedback.step import Window
from fb_fairseq.ops.feedback.types import Context, FeedbackOptions, FeedbackWeights, project_context

STORAGES = ("keys-values", "vectors")
# Slots at the start; their number doubles when a sequence gets longer. So short sequences need little memory, and their
# steps read little.
FIRST_SLOTS = 64


class MemoryRing(StepMemory):
    """The last S steps of B streams. Step t is in slot t mod S.

    A step reads ``windows``, then calls ``push`` once, which advances ``position``.

    Args:
        span: S.
        storage: ``keys-values``: keys and values, projected once. ``vectors``: the memories alone, projected again at
            each step (v1 §5.3); with shared projections half of the bytes.
        captured: on a GPU, run steps as CUDA graphs when no gradient is wanted.

    Attributes:
        position: number of steps seen.
        slots: number of slots so far; at most S.
        buffer: what is kept. keys-values: keys and values of each set [J, B, H, C, E]; vectors: the memories of each
            step [J, B, C, D]. The slots of a stream and head are adjacent, so that attention reads them in one go.
        capture: the CUDA graph of a step; None if steps are not captured.
        seen_1: ``position`` on the device, for a captured step.
    """

    def __init__(self, span: int, storage: str = "keys-values", captured: bool = False):
        self.span = span
        self.slots = min(FIRST_SLOTS, span)
        self.storage = storage
        self.position = 0
        self.buffer: Optional[Tensor] = None
        # As large: reordered streams are written here, which saves an allocation in each step of beam search.
        self._spare: Optional[Tensor] = None
        # Steps of each stream's episode so far; None as long as no episode has ended.
        self._age_B: Optional[Tensor] = None
        self.capture = StepGraph() if captured else None
        self.seen_1: Optional[Tensor] = None
        self._static = False

    @contextmanager
    def position_on_device(self, device: torch.device) -> Iterator[None]:
        """Context in which a step is captured.

        The step works on all slots, with a mask for the empty ones, and takes the position from ``seen_1``; the
        attribute ``position`` does not change.
        """
        self.seen_1, self._static = torch.full((1,), self.position, device=device), True
        try:
            yield
        finally:
            self._static = False

    def make_room(self) -> None:
        """Double the slots, up to S, if the next step needs one more."""
        if not self.position == self.slots < self.span:
            return
        old, self.slots = self.buffer, min(2 * self.slots, self.span)
        self.buffer = old.new_zeros(*old.shape[:-2], self.slots, old.shape[-1])
        self.buffer[..., : self.position, :] = old
        self._forget_graph()

    def push(self, memory_KBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> None:
        """Keep a step's memories, in place of the oldest."""
        new_JBE = self._kept(memory_KBD[:, None], weights, options)[:, 0]
        if self.buffer is None:
            self.buffer = new_JBE.new_zeros(*new_JBE.shape[:-1], self.slots, new_JBE.shape[-1])
        if self._static:
            self.buffer.index_copy_(-2, self.seen_1 % self.span, new_JBE.unsqueeze(-2))
        else:
            self.buffer[..., self.position % self.span, :] = new_JBE
            self.position += 1
        if self._age_B is not None:
            self._age_B += 1

    def load(self, memory_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> None:
        """Fill an empty ring with the memories of the last C <= S steps, oldest first."""
        C = memory_KCBD.shape[1]
        while self.slots < C:
            self.slots = min(2 * self.slots, self.span)
        kept_JCBE = self._kept(memory_KCBD, weights, options)
        self.buffer = kept_JCBE.new_zeros(len(kept_JCBE), *kept_JCBE.shape[2:-1], self.slots, kept_JCBE.shape[-1])
        self.buffer[..., :C, :] = kept_JCBE.movedim(1, -2)
        self.position = C

    def _kept(self, memory_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> Tensor:
        """Memories in the form in which they are stored: [J, C, B, D] or [J, C, B, H, E]."""
        if self.storage == "vectors":
            return memory_KCBD
        contexts = project_context(memory_KCBD, weights, options)
        return torch.stack([slots.to(memory_KCBD.dtype) for context in contexts for slots in context])

    def windows(self, weights: FeedbackWeights, options: FeedbackOptions, x_BD: Tensor) -> List[Window]:
        """What each layer attends to: the slots that hold a step.

        Args:
            x_BD: the step's embedding, for its type and device.
        """
        contexts = self._contexts(weights, options, x_BD)
        distances_C = self._distances(x_BD.device)
        filled_1C = None
        if self._static:
            filled_1C = (torch.arange(self.slots, device=x_BD.device) < self.seen_1).to(x_BD.dtype)[None]
        positions = weights.positions.of_slots(distances_C)
        windows = []
        for l, layer in enumerate(weights.layers):
            mask = filled_1C
            if layer.span_mask_HS is not None:
                mask = layer.span_mask_HS[:, distances_C - 1]
                mask = mask if filled_1C is None else mask * filled_1C
            seen_1 = self.seen_1 if self._static else None
            windows.append(Window(*contexts[l if len(contexts) > 1 else 0], positions, mask, seen_1))
        return windows

    def _contexts(self, weights: FeedbackWeights, options: FeedbackOptions, x_BD: Tensor) -> List[Context]:
        """Keys and values of the slots: one set, or one per layer."""
        if self.buffer is None:
            empty_KCBD = x_BD.new_zeros(weights.mix_KA.shape[0], 0, *x_BD.shape)
            return project_context(empty_KCBD, weights, options)
        used = self.buffer if self._static else self.buffer[..., : self.position, :]
        slots_first = used.movedim(-2, 1)
        if self.storage == "vectors":
            return project_context(slots_first, weights, options)
        return [Context(*pair) for pair in zip(slots_first[::2], slots_first[1::2])]

    def _distances(self, device: torch.device) -> Tensor:
        """The distance of each slot's step from the next step, [C]."""
        slots_C = torch.arange(self.slots if self._static else min(self.position, self.slots), device=device)
        seen = self.seen_1 if self._static else self.position
        return (seen - 1 - slots_C) % self.span + 1

    def reset(self, age_B: Tensor) -> None:
        """See ``StepMemory.reset``."""
        if self._age_B is None or len(self._age_B) != len(age_B):
            self._age_B = age_B.clone()
            self._forget_graph()
        else:
            self._age_B.copy_(age_B)

    def far_BC(self, device: torch.device) -> Optional[Tensor]:
        """True for slots that are older than a stream's episode; None: there are none."""
        if self._age_B is None or self.buffer is None:
            return None
        return self._distances(device) > self._age_B[:, None]

    def reorder(self, order: Tensor) -> None:
        """See ``StepMemory.reorder``."""
        if self._age_B is not None:
            self.reset(self._age_B[order])
        if self.buffer is None:
            return
        if self.buffer.requires_grad:
            self.buffer, self._spare = self.buffer.index_select(1, order), None
            self._forget_graph()
            return
        old, streams, filled = self.buffer, len(order), slice(None if self.position > self.slots else self.position)
        if self._spare is None or self._spare.shape[1] != streams or self._spare.shape[-2] != self.slots:
            self._spare = old.new_zeros(len(old), streams, *old.shape[2:])
        torch.index_select(old[..., filled, :], 1, order, out=self._spare[..., filled, :])
        if old.shape[1] != streams:
            self.buffer, self._spare = self._spare, None
            self._forget_graph()
        elif self.capture is not None and self.capture.graph is not None:
            old[..., filled, :] = self._spare[..., filled, :]  # the graph reads this memory
        else:
            self.buffer, self._spare = self._spare, old

    def nbytes(self) -> int:
        """Bytes of the slots (beam search holds twice as many, half of them spare)."""
        return 0 if self.buffer is None else self.buffer.numel() * self.buffer.element_size()

    def _forget_graph(self) -> None:
        if self.capture is not None:
            self.capture.forget()
