"""What decoding one step at a time keeps of the past: S slots, made once, overwritten in a circle.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import List, Optional

import torch
from torch import Tensor

from fb_fairseq.ops.feedback_reference import Context, FeedbackOptions, FeedbackWeights, Window, project_context

STORAGES = ("keys-values", "vectors")


class MemoryRing:
    """The last S steps of B streams. Step t lies in slot t mod S.

    Args:
        storage: ``keys-values``: projected once, fast. ``vectors``: the memories alone, projected again at each step
            (v1 §5.3); with shared projections half of the bytes.
        slots: made at the start; doubled, up to S, when a sequence is longer (for S that most never reach).
    """

    def __init__(self, span: int, storage: str = "keys-values", slots: Optional[int] = None):
        self.span = span
        self.slots = min(slots or span, span)
        self.storage = storage
        self.position = 0  # steps seen
        # keys-values: keys and values of each set [S, B, H, E]; vectors: the memories of each step [S, B, D], K of them.
        # In memory the slots of a stream and head lie side by side: so attention reads them in one go.
        self.buffers: Optional[List[Tensor]] = None

    def push(self, memory_KBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> None:
        """Keep a step's memories in place of the oldest."""
        if self.storage == "vectors":
            new = list(memory_KBD)
        else:
            contexts = project_context(memory_KBD[:, None], weights, options)
            new = [slots[0].to(memory_KBD.dtype) for context in contexts for slots in context]
        if self.buffers is None:
            self.buffers = [slots_first(x.new_empty(*x.shape[:-1], self.slots, x.shape[-1])) for x in new]
        elif self.position == self.slots < self.span:
            self.slots = min(2 * self.slots, self.span)
            for i, old in enumerate(map(slots_last, self.buffers)):
                self.buffers[i] = slots_first(old.new_empty(*old.shape[:-2], self.slots, old.shape[-1]))
                self.buffers[i][: self.position] = slots_first(old)
        for buffer, x in zip(self.buffers, new):
            buffer[self.position % self.span] = x
        self.position += 1

    def windows(self, weights: FeedbackWeights, options: FeedbackOptions, x_BD: Tensor) -> List[Window]:
        """What each layer attends to: the slots that hold a step."""
        contexts = self._contexts(weights, options, x_BD)
        slots_C = torch.arange(min(self.position, self.span), device=x_BD.device)
        distances_C = (self.position - 1 - slots_C) % self.span + 1  # from the step to come
        positions = weights.positions.of_slots(distances_C)
        windows = []
        for l, layer in enumerate(weights.layers):
            mask = None if layer.span_mask_HS is None else layer.span_mask_HS[:, distances_C - 1]
            windows.append(Window(*contexts[l if len(contexts) > 1 else 0], positions, mask))
        return windows

    def _contexts(self, weights: FeedbackWeights, options: FeedbackOptions, x_BD: Tensor) -> List[Context]:
        if self.buffers is None:
            empty_KCBD = x_BD.new_zeros(weights.mix_KN.shape[0], 0, *x_BD.shape)
            return project_context(empty_KCBD, weights, options)
        filled = [buffer[: self.position] for buffer in self.buffers]
        if self.storage == "vectors":
            return project_context(torch.stack(filled), weights, options)
        return [Context(*pair) for pair in zip(filled[::2], filled[1::2])]

    def reorder(self, order: Tensor) -> None:
        """Take the streams in another order; some more than once, some no more (beam search)."""
        if self.buffers is not None:
            self.buffers = [slots_first(slots_last(buffer).index_select(0, order)) for buffer in self.buffers]

    def nbytes(self) -> int:
        return sum(buffer.numel() * buffer.element_size() for buffer in self.buffers or [])


def slots_first(x: Tensor) -> Tensor:
    """The view [S, B, …, E] of [B, …, S, E]."""
    return x.movedim(-2, 0)


def slots_last(x: Tensor) -> Tensor:
    return x.movedim(0, -2)
