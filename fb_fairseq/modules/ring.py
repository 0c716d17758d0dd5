"""The memory of decoding step by step: a ring of slots for the last S steps.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from contextlib import contextmanager
from typing import Iterator, List, Optional, Union

import torch
from torch import Tensor
from torch.nn.functional import pad

from fb_fairseq.modules.interface import StepMemory
from fb_fairseq.ops.feedback.native.step import RingSlots
from fb_fairseq.ops.feedback.step import Window
from fb_fairseq.ops.feedback.types import Context, FeedbackOptions, FeedbackWeights, project_context

# Slots at the start; their number doubles when a sequence gets longer. So short sequences need little memory, and their
# steps read little.
FIRST_SLOTS = 64


class StepCounter:
    """How many steps a ring has seen, and so which slots hold a step: step t is in slot t mod S.

    While a step is captured as a CUDA graph, the number is on the device, and the step works on all slots, filled or
    not.

    Args:
        span: S.

    Attributes:
        steps: the number in Python.
        on_device: whether a step is being captured; ``steps`` does not change then.
    """

    def __init__(self, span: int):
        self.span, self.steps, self.on_device = span, 0, False
        self._steps_1: Optional[Tensor] = None

    def advance(self) -> None:
        """Count a step."""
        if not self.on_device:
            self.steps += 1

    @contextmanager
    def capturing(self, device: torch.device) -> Iterator[None]:
        """Context in which a step is captured."""
        self._steps_1, self.on_device = torch.full((1,), self.steps, device=device), True
        try:
            yield
        finally:
            self.on_device = False

    def before_replay(self, steps: int) -> None:
        """Tell a captured step how many steps came before it."""
        self._steps_1.fill_(steps)

    @property
    def steps_1(self) -> Optional[Tensor]:
        """The number on the device while a step is captured; else None."""
        return self._steps_1 if self.on_device else None

    @property
    def current(self) -> Union[int, Tensor]:
        """The number, in Python or on the device."""
        return self._steps_1 if self.on_device else self.steps

    def used(self, slots: int) -> int:
        """How many of the slots a step works on."""
        return slots if self.on_device else min(self.steps, slots)

    def distances(self, slots: int, device: torch.device) -> Tensor:
        """The distance of each used slot's step from the next step, [C]."""
        slots_C = torch.arange(self.used(slots), device=device)
        return (self.current - 1 - slots_C) % self.span + 1

    def filled(self, slots: int, like: Tensor) -> Optional[Tensor]:
        """Which slots hold a step, [1, C] of ones and zeros in the type of ``like``; None: all that are used."""
        if not self.on_device:
            return None
        return (torch.arange(slots, device=like.device) < self._steps_1).to(like.dtype)[None]


class Episodes:
    """Where the streams' episodes began; see ``StepMemory.reset``.

    Attributes:
        age_B: steps of each stream's episode so far; None as long as no episode has ended.
    """

    def __init__(self):
        self.age_B: Optional[Tensor] = None

    def reset(self, age_B: Tensor) -> bool:
        """Set the ages. Returns whether they are in the same memory as before."""
        if self.age_B is None or len(self.age_B) != len(age_B):
            self.age_B = age_B.clone()
            return False
        self.age_B.copy_(age_B)
        return True

    def advance(self) -> None:
        """Count a step of all streams."""
        if self.age_B is not None:
            self.age_B += 1


class KeyValueStorage:
    """Slots hold keys and values, projected once: [J, B, H, C, E], where J counts the keys and values of each set."""

    def stored(self, memory_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> Tensor:
        """Memories in the form in which they are stored, slots second: [J, C, B, H, E]."""
        contexts = project_context(memory_KCBD, weights, options)
        return torch.stack([slots.to(memory_KCBD.dtype) for context in contexts for slots in context])

    def contexts(self, stored_JCBHE: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> List[Context]:
        """Keys and values of stored slots: one set, or one per layer."""
        return [Context(*pair) for pair in zip(stored_JCBHE[::2], stored_JCBHE[1::2])]


class VectorStorage:
    """Slots hold the memories alone, [K, B, C, D]; they are projected again at each step (v1 §5.3)."""

    def stored(self, memory_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> Tensor:
        """The memories as they are."""
        return memory_KCBD

    def contexts(self, stored_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> List[Context]:
        """Keys and values of stored slots: one set, or one per layer."""
        return project_context(stored_KCBD, weights, options)


STORAGES = {"keys-values": KeyValueStorage, "vectors": VectorStorage}


class MemoryRing(StepMemory):
    """The last S steps of B streams.

    A step reads ``windows``, then calls ``push`` once.

    Args:
        span: S.
        storage: ``keys-values`` (fast) or ``vectors`` (with shared projections half of the bytes).

    Attributes:
        slots: number of slots so far; at most S.
        buffer: what is stored, with slots as the last but one dimension: the slots of a stream and head are adjacent,
            so that attention reads them in one go. None before the first step.
        counter: how many steps were seen.
        captured: the captured step in whose memory the slots lie; None: they have memory of their own. See
            ``fb_fairseq.modules.step_graph``, which also counts ``steps_without_graph``.
        packed: the packed weights that the last step was run with; None: it was not a native one.
    """

    def __init__(self, span: int, storage: str = "keys-values"):
        self.span = span
        self.slots = min(FIRST_SLOTS, span)
        self.buffer: Optional[Tensor] = None
        # As large: reordered streams are written here, which saves an allocation in each step of beam search.
        self._spare: Optional[Tensor] = None
        self.counter, self._episodes, self._storage = StepCounter(span), Episodes(), STORAGES[storage]()
        self.captured: Optional[object] = None
        self.steps_without_graph = 0
        self.packed: Optional[object] = None
        self._origin_BC: Optional[Tensor] = None

    @property
    def position(self) -> int:
        """Number of steps seen."""
        return self.counter.steps

    def make_room(self) -> None:
        """Double the slots, up to S, if the next step needs one more."""
        if not self.position == self.slots < self.span:
            return
        self.move_away()
        old, self.slots = self.buffer, min(2 * self.slots, self.span)
        if self._origin_BC is not None:
            self._origin_BC = pad(self._origin_BC, (0, self.slots - self.position))
        self.buffer = old.new_zeros(*old.shape[:-2], self.slots, old.shape[-1])
        self.buffer[..., : self.position, :] = old

    def push(self, memory_KBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> None:
        """Store a step's memories, in place of the oldest."""
        self._follow_origins()
        new = self._storage.stored(memory_KBD[:, None], weights, options)[:, 0]
        if self.buffer is None:
            self.buffer = new.new_zeros(*new.shape[:-1], self.slots, new.shape[-1])
        slot = self.counter.current % self.span
        if self.counter.on_device:
            self.buffer.index_copy_(-2, slot, new.unsqueeze(-2))
        else:
            self.buffer[..., slot, :] = new
        self.advance()

    def advance(self) -> None:
        """Count a step whose slot is written."""
        self.counter.advance()
        self._episodes.advance()

    @property
    def keeps_rows(self) -> bool:
        """Whether native steps can work on the slots: keys and values in fp32 on a CPU."""
        if not isinstance(self._storage, KeyValueStorage) or self.captured is not None:
            return False
        return self.buffer is None or (self.buffer.dtype == torch.float32 and self.buffer.device.type == "cpu")

    def slots_to_write(self, sets: int, streams: int, heads: int, head_dim: int) -> RingSlots:
        """The slots, as a native step reads them and writes its own; see ``advance``.

        Args:
            sets: how many sets of keys and values there are.
        """
        if self.buffer is None:
            self.buffer = torch.zeros(2 * sets, streams, heads, self.slots, head_dim)
        return RingSlots(self.buffer, self._origin_BC, self._episodes.age_B, self.position, self.span)

    def load(self, memory_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> None:
        """Fill an empty ring with the memories of the last C <= S steps, oldest first."""
        C = memory_KCBD.shape[1]
        while self.slots < C:
            self.slots = min(2 * self.slots, self.span)
        stored = self._storage.stored(memory_KCBD, weights, options)
        self.buffer = stored.new_zeros(len(stored), *stored.shape[2:-1], self.slots, stored.shape[-1])
        self.buffer[..., :C, :] = stored.movedim(1, -2)
        self.counter.steps = C

    def windows(self, weights: FeedbackWeights, options: FeedbackOptions, x_BD: Tensor) -> List[Window]:
        """What each layer attends to: the slots that hold a step.

        Args:
            x_BD: the step's embedding, for its type and device.
        """
        contexts = self._contexts(weights, options, x_BD)
        distances_C = self.counter.distances(self.slots, x_BD.device)
        filled_1C = self.counter.filled(self.slots, x_BD)
        positions = weights.positions.of_slots(distances_C)
        windows = []
        for l, layer in enumerate(weights.layers):
            mask = filled_1C
            if layer.span_mask_HS is not None:
                mask = layer.span_mask_HS[:, distances_C - 1]
                mask = mask if filled_1C is None else mask * filled_1C
            context = contexts[l if len(contexts) > 1 else 0]
            windows.append(Window(*context, positions, mask, self.counter.steps_1))
        return windows

    def _contexts(self, weights: FeedbackWeights, options: FeedbackOptions, x_BD: Tensor) -> List[Context]:
        """Keys and values of the slots: one set, or one per layer."""
        self._follow_origins()
        if self.buffer is None:
            empty_KCBD = x_BD.new_zeros(weights.mix_KA.shape[0], 0, *x_BD.shape)
            return project_context(empty_KCBD, weights, options)
        used = self.buffer[..., : self.counter.used(self.slots), :]
        return self._storage.contexts(used.movedim(-2, 1), weights, options)

    def reset(self, age_B: Tensor) -> None:
        """See ``StepMemory.reset``."""
        if not self._episodes.reset(age_B):
            self.move_away()

    def far_BC(self, device: torch.device) -> Optional[Tensor]:
        """True for slots that are older than a stream's episode; None: there are none."""
        if self._episodes.age_B is None or self.buffer is None:
            return None
        return self.counter.distances(self.slots, device) > self._episodes.age_B[:, None]

    def reorder(self, order: Tensor) -> None:
        """See ``StepMemory.reorder``."""
        if self._episodes.age_B is not None:
            self.reset(self._episodes.age_B[order])
        if self.buffer is None:
            return
        if self.packed is not None and len(order) <= self.buffer.shape[1]:
            if self._origin_BC is None:
                streams = torch.arange(self.buffer.shape[1], dtype=torch.int32)
                self._origin_BC = streams[:, None].repeat(1, self.slots)
            self._origin_BC = self._origin_BC[order]
            return
        self._follow_origins()
        if self.buffer.requires_grad:
            self.buffer, self._spare = self.buffer.index_select(1, order), None
            return
        old, streams, filled = self.buffer, len(order), slice(self.counter.used(self.slots))
        if self._spare is None or self._spare.shape[1] != streams or self._spare.shape[-2] != self.slots:
            self._spare = old.new_zeros(len(old), streams, *old.shape[2:])
        torch.index_select(old[..., filled, :], 1, order, out=self._spare[..., filled, :])
        if old.shape[1] != streams:
            self.buffer, self._spare, self.captured = self._spare, None, None
        elif self.captured is not None:
            old[..., filled, :] = self._spare[..., filled, :]  # the graph reads this memory
        else:
            self.buffer, self._spare = self._spare, old

    def _follow_origins(self) -> None:
        """Move slots to the streams that look at them.

        Between native steps reordered streams look at each other's slots, and nothing is copied. Each step of a stream
        is in a slot of its own number, so no stream writes what another one looks at.
        """
        self.packed = None
        if self._origin_BC is None:
            return
        old, used = self.buffer, self.counter.used(self.slots)
        origin_B1C, heads_H1 = self._origin_BC[:, None, :used].long(), torch.arange(old.shape[2])[:, None]
        self.buffer = old.new_zeros(len(old), len(origin_B1C), *old.shape[2:])
        self.buffer[..., :used, :] = old[:, origin_B1C, heads_H1, torch.arange(used)]
        self._origin_BC = self._spare = None

    def nbytes(self) -> int:
        """Bytes of the slots (beam search holds twice as many, half of them spare)."""
        return 0 if self.buffer is None else self.buffer.numel() * self.buffer.element_size()

    # For captured steps.

    def shape(self) -> tuple:
        """What a step on the slots depends on, except the number of streams and the values of tensors."""
        b, episodes = self.buffer, self._episodes.age_B is not None
        return (self.span, type(self._storage), b.shape[0], *b.shape[2:], b.dtype, episodes)

    def empty_copy(self, streams: int) -> "MemoryRing":
        """Another ring with as many slots, for a number of streams."""
        ring = MemoryRing(self.span)
        ring._storage, ring.slots = self._storage, self.slots
        ring.buffer = self.buffer.new_zeros(len(self.buffer), streams, *self.buffer.shape[2:])
        if self._episodes.age_B is not None:
            ring._episodes.age_B = self._episodes.age_B.new_zeros(streams)
        return ring

    @torch.no_grad()
    def copy_rows(self, ring: "MemoryRing") -> None:
        """Copy a ring's steps to the first streams of this one."""
        ring._follow_origins()
        self.buffer[:, : ring.buffer.shape[1]].copy_(ring.buffer)
        self.counter.steps = ring.position
        if ring._episodes.age_B is not None:
            self._episodes.age_B[: len(ring._episodes.age_B)].copy_(ring._episodes.age_B)

    def move_to(self, ring: "MemoryRing") -> None:
        """Let the slots and the episodes' ages lie in another ring's memory, which holds the same."""
        self.buffer = ring.buffer[:, : self.buffer.shape[1]]
        if self._episodes.age_B is not None:
            self._episodes.age_B = ring._episodes.age_B[: len(self._episodes.age_B)]

    def move_away(self) -> None:
        """Give the slots and the episodes' ages memory of their own again."""
        if self.captured is None:
            return
        self.captured, self.buffer = None, self.buffer.clone()
        if self._episodes.age_B is not None:
            self._episodes.age_B = self._episodes.age_B.clone()
