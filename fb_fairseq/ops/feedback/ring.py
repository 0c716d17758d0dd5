"""The memory of decoding step by step: a ring of slots for the last S steps, and a step's attention to them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from fb_fairseq.ops.attention import step_attention
from fb_fairseq.ops.feedback.reference import project_context
from fb_fairseq.ops.feedback.step_memory import StepMemory
from fb_fairseq.ops.feedback.types import Context, FeedbackOptions, FeedbackWeights, one_or_own

# Slots at the start; their number doubles when a sequence gets longer. So short sequences need little memory, and their
# steps read little.
FIRST_SLOTS = 64


# What slots hold: keys and values, projected once, which is fast: [J, B, H, C, E], where J counts the keys and values
# of each set. Or the memories alone, which are projected again at each step (v1 §5.3), [K, B, C, D]: with shared
# projections half of the bytes.
STORAGES = KEYS_VALUES, VECTORS = "keys-values", "vectors"


class MemoryRing(StepMemory):
    """The last S steps of B streams, a key-value cache. Step t is in slot t mod S.

    A step calls ``attention`` and ``store``; whoever ran it then calls ``advance``, which alone counts steps.

    The slots lie in one of three places. A captured step finds them only where it was captured; a step in C++ finds
    them in any order of streams, so that reordering copies nothing:

        place                                 field that is not None  slots come there by      and leave by
        memory of the ring's own              none of the two
        that of a captured step               ``graph``               ``CapturedStep.hold``    ``release``
        the ring's own, streams in any order  ``origin_BC``           ``reorder``              ``settle``, ``release``

    Args:
        span: S.
        storage: one of ``STORAGES``.

    Attributes:
        position: number of steps seen.
        slots: number of slots so far; at most S.
        buffer: what is stored, with slots as the last but one dimension: the slots of a stream and head are adjacent,
            so that attention reads them in one go. None before the first step.
        age_B: steps of each stream's episode so far; None as long as no episode has ended.
        graph: the ``CapturedStep`` in whose memory the slots lie.
        packed: the ``PackedModel`` of the last step; None: it did not run in C++, or slots have moved since.
        origin_BC: the stream (int32) whose slot a stream looks at; None: its own.
    """

    def __init__(self, span: int, storage: str = KEYS_VALUES):
        self.span, self.storage = span, storage
        self.position, self.slots = 0, min(FIRST_SLOTS, span)
        self.buffer: Tensor | None = None
        self.age_B: Tensor | None = None
        self.graph: Any = None
        self.packed: Any = None
        self.origin_BC: Tensor | None = None

    # Which slots hold a step. (``cuda_graphs/device_ring.py`` has the position on the device.)

    @property
    def used(self) -> int:
        """The number of slots that a step works on."""
        return min(self.position, self.slots)

    def distances(self, device: torch.device) -> Tensor:
        """The distance of each used slot's step from the next step, [C]."""
        return (self.position - 1 - torch.arange(self.used, device=device)) % self.span + 1

    def filled(self, like: Tensor) -> Tensor | None:
        """1 where a slot is filled, 0 where it is empty, [1, C] in the type of ``like``; None if all are filled."""
        return None

    def write(self, new: Tensor) -> None:
        """Write a step to its slot of the buffer."""
        self.buffer[..., self.position % self.span, :] = new

    # A step.

    def make_room(self) -> None:
        """Double the slots, up to S, if the next step needs one more."""
        if self.position < self.slots or self.slots == self.span:
            return
        self.release()
        self.slots = min(2 * self.slots, self.span)
        self.buffer = pad(self.buffer, (0, 0, 0, self.slots - self.position))

    def attention(self, weights: FeedbackWeights, options: FeedbackOptions, x_BD: Tensor) -> Callable[..., Tensor]:
        """The attention of a step's layers to the slots that hold a step.

        Args:
            x_BD: the step's embedding, for its type and device.

        Returns:
            A function of a layer's number and its queries [B, H, E], and ``return_lse``; see ``step_attention``.
        """
        self.settle()
        contexts, distances_C = self._contexts(weights, options, x_BD), self.distances(x_BD.device)
        filled_1C, far_BC = self.filled(x_BD), None
        if self.age_B is not None:
            far_BC = distances_C > self.age_B[:, None]
        positions = weights.positions.of_slots(distances_C)

        def attend(l: int, query_BHE: Tensor, return_lse: bool = False):
            keys, values = (slots.to(query_BHE.dtype) for slots in contexts[one_or_own(l, len(contexts))])
            mask, span_mask_HS = filled_1C, weights.layers[l].span_mask_HS
            if span_mask_HS is not None:
                mask = span_mask_HS[:, distances_C - 1]
                mask = mask if filled_1C is None else mask * filled_1C
            return step_attention(
                query_BHE, keys, values, positions, span_mask_HC=mask, return_lse=return_lse, far_BC=far_BC
            )

        return attend

    def _contexts(self, weights: FeedbackWeights, options: FeedbackOptions, x_BD: Tensor) -> list[Context]:
        """Keys and values of the slots: one set, or one per layer."""
        if self.buffer is None:
            empty_KCBD = x_BD.new_zeros(weights.mix_KA.shape[0], 0, *x_BD.shape)
            return project_context(empty_KCBD, weights, options)
        stored = self.buffer[..., : self.used, :].movedim(-2, 1)
        if self.storage == VECTORS:
            return project_context(stored, weights, options)
        return [Context(*pair) for pair in zip(stored[::2], stored[1::2])]

    def _stored(self, memory_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> Tensor:
        """Memories in the form in which they are stored, slots second."""
        if self.storage == VECTORS:
            return memory_KCBD
        contexts = project_context(memory_KCBD, weights, options)
        return torch.stack([slots.to(memory_KCBD.dtype) for context in contexts for slots in context])

    def store(self, memory_KBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> None:
        """Write what a step leaves to the next slot."""
        new = self._stored(memory_KBD[:, None], weights, options)[:, 0]
        if self.buffer is None:
            self.buffer = new.new_zeros(*new.shape[:-1], self.slots, new.shape[-1])
        self.write(new)

    def advance(self) -> None:
        """Count a step, whose slot is written."""
        self.position += 1
        if self.age_B is not None:
            self.age_B += 1

    # Between steps.

    def load(self, memory_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> None:
        """Fill an empty ring with the memories of the last C <= S steps, oldest first."""
        C = memory_KCBD.shape[1]
        while self.slots < C:
            self.slots = min(2 * self.slots, self.span)
        stored = self._stored(memory_KCBD, weights, options).movedim(1, -2)
        self.buffer = pad(stored, (0, 0, 0, self.slots - C)).contiguous()
        self.position = C

    def reset(self, age_B: Tensor) -> None:
        if self.age_B is None or len(self.age_B) != len(age_B):
            self.release()
            self.age_B = age_B.clone()
        else:
            self.age_B.copy_(age_B)

    def reorder(self, order: Tensor) -> None:
        if self.age_B is not None:
            self.reset(self.age_B[order])
        if self.buffer is None:
            return
        streams = self.buffer.shape[1]
        if self.packed is not None and len(order) <= streams:
            if self.origin_BC is None:
                self.origin_BC = torch.arange(streams, dtype=torch.int32)[:, None].repeat(1, self.slots)
            self.origin_BC = self.origin_BC[order]
            return
        if self.graph is not None and len(order) == streams:
            filled = self.buffer[..., : self.used, :]
            filled.copy_(filled.index_select(1, order))
            return
        self.release()
        self.buffer = self.buffer.index_select(1, order)

    def settle(self) -> None:
        """Sort the slots by stream. (Each step of a stream is in a slot of its own number, so no stream has written
        what another one looks at.)
        """
        origin_BC, self.origin_BC, self.packed = self.origin_BC, None, None
        if origin_BC is None:
            return
        old, used = self.buffer, self.used
        origin_B1C, heads_H1 = origin_BC[:, None, :used].long(), torch.arange(old.shape[2])[:, None]
        new = old.new_zeros(len(old), len(origin_BC), *old.shape[2:])
        new[..., :used, :] = old[:, origin_B1C, heads_H1, torch.arange(used)]
        self.buffer = new

    def release(self) -> None:
        """Take the slots into memory of the ring's own, sorted by stream."""
        self.settle()
        if self.graph is not None:
            self.graph = None
            self.buffer = self.buffer.clone()
            if self.age_B is not None:
                self.age_B = self.age_B.clone()

    def __getstate__(self):
        """For deep copies and files."""
        self.release()
        return vars(self)

    def nbytes(self) -> int:
        """Bytes of the slots."""
        return 0 if self.buffer is None else self.buffer.nbytes
