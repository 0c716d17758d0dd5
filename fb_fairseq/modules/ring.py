"""What decoding one step at a time keeps of the past: slots for the last S steps, overwritten in a circle.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``; J for all that is kept of a step.
"""

from typing import Any, Callable, List, Optional

import torch
from torch import Tensor

from fb_fairseq.ops.cuda_graph import CudaGraph, copies
from fb_fairseq.ops.fallbacks import can_capture, stop_capturing
from fb_fairseq.ops.feedback.reference import project_context
from fb_fairseq.ops.feedback.types import Context, FeedbackOptions, FeedbackWeights, Window

STORAGES = ("keys-values", "vectors")
FIRST_SLOTS = 64  # more are made when a sequence gets longer
CAPTURE_AT = 8  # steps with the same slots and streams


class MemoryRing:
    """The last S steps of B streams. Step t lies in slot t mod S.

    Args:
        storage: ``keys-values``: projected once, fast. ``vectors``: the memories alone, projected again at each step
            (v1 §5.3); with shared projections half of the bytes.
        captured: on a GPU, where no gradient is wanted, a step is captured as a CUDA graph. It works on all slots, with a
            mask for those that are still empty, and with the position as a number on the device.
    """

    def __init__(self, span: int, storage: str = "keys-values", captured: bool = False):
        self.span = span
        self.slots = min(FIRST_SLOTS, span)
        self.storage = storage
        self.captured = captured
        self.position = 0  # steps seen
        # keys-values: keys and values of each set [J, B, H, S, E]; vectors: the memories of each step [J, B, S, D].
        # The slots of a stream and head lie side by side: so attention reads them in one go.
        self.buffer: Optional[Tensor] = None
        self.spare: Optional[Tensor] = None  # as large: where reordered streams go to, which saves making it anew
        self.static = False  # while a step is captured
        # Steps of each stream's episode so far; None where none has ended yet: all that is kept is its own.
        self.age_B: Optional[Tensor] = None
        self._forget_graph()

    def run(self, step: Callable[[Tensor], Any], x_BD: Tensor) -> Any:
        """Run one step: a function of its embedding that attends to ``windows`` and calls ``push`` once."""
        if self.position == self.slots < self.span:
            self._grow()
        result = self._replay(x_BD) if self._is_captured(step, x_BD) else step(x_BD)
        self.position += 1
        self.steps += 1
        return result

    def push(self, memory_KBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> None:
        """Keep a step's memories in place of the oldest."""
        new_JBE = self._kept(memory_KBD[:, None], weights, options)[:, 0]
        if self.buffer is None:
            self.buffer = new_JBE.new_zeros(*new_JBE.shape[:-1], self.slots, new_JBE.shape[-1])
        if self.static:
            self.buffer.index_copy_(-2, self.seen_1 % self.span, new_JBE.unsqueeze(-2))
        else:
            self.buffer[..., self.position % self.span, :] = new_JBE
        if self.age_B is not None:
            self.age_B += 1

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
        """What is kept of memories: [J, C, B, E] or [J, C, B, H, E]."""
        if self.storage == "vectors":
            return memory_KCBD
        contexts = project_context(memory_KCBD, weights, options)
        return torch.stack([slots.to(memory_KCBD.dtype) for context in contexts for slots in context])

    def reset(self, age_B: Tensor) -> None:
        """Episodes: of each stream only the last ``age_B`` steps are its own from here on (0: a new one starts)."""
        if self.age_B is None or len(self.age_B) != len(age_B):
            self.age_B = age_B.clone()
            self._forget_graph()
        else:
            self.age_B.copy_(age_B)

    def far_BC(self, device: torch.device) -> Optional[Tensor]:
        """Which slots each stream's episode does not reach."""
        if self.age_B is None or self.buffer is None:
            return None
        return self._distances(device) > self.age_B[:, None]

    def _distances(self, device: torch.device) -> Tensor:
        """How many steps before the step to come each slot's lies, [C]."""
        slots_C = torch.arange(self.slots if self.static else min(self.position, self.slots), device=device)
        seen = self.seen_1 if self.static else self.position
        return (seen - 1 - slots_C) % self.span + 1

    def windows(self, weights: FeedbackWeights, options: FeedbackOptions, x_BD: Tensor) -> List[Window]:
        """What each layer attends to: the slots that hold a step."""
        contexts = self._contexts(weights, options, x_BD)
        distances_C = self._distances(x_BD.device)
        filled_1C = None
        if self.static:
            filled_1C = (torch.arange(self.slots, device=x_BD.device) < self.seen_1).to(x_BD.dtype)[None]
        positions = weights.positions.of_slots(distances_C)
        windows = []
        for l, layer in enumerate(weights.layers):
            mask = filled_1C
            if layer.span_mask_HS is not None:
                mask = layer.span_mask_HS[:, distances_C - 1]
                mask = mask if filled_1C is None else mask * filled_1C
            seen_1 = self.seen_1 if self.static else None
            windows.append(Window(*contexts[l if len(contexts) > 1 else 0], positions, mask, seen_1))
        return windows

    def _contexts(self, weights: FeedbackWeights, options: FeedbackOptions, x_BD: Tensor) -> List[Context]:
        if self.buffer is None:
            empty_KCBD = x_BD.new_zeros(weights.mix_KN.shape[0], 0, *x_BD.shape)
            return project_context(empty_KCBD, weights, options)
        used = self.buffer if self.static else self.buffer[..., : self.position, :]
        slots_first = used.movedim(-2, 1)
        if self.storage == "vectors":
            return project_context(slots_first, weights, options)
        return [Context(*pair) for pair in zip(slots_first[::2], slots_first[1::2])]

    def reorder(self, order: Tensor) -> None:
        """Take the streams in another order; some more than once, some no more (beam search)."""
        if self.age_B is not None:
            self.reset(self.age_B[order])
        if self.buffer is None:
            return
        if self.buffer.requires_grad:
            self.buffer, self.spare = self.buffer.index_select(1, order), None
            self._forget_graph()
            return
        old, streams, filled = self.buffer, len(order), slice(None if self.position > self.slots else self.position)
        if self.spare is None or self.spare.shape[1] != streams or self.spare.shape[-2] != self.slots:
            self.spare = old.new_zeros(len(old), streams, *old.shape[2:])
        torch.index_select(old[..., filled, :], 1, order, out=self.spare[..., filled, :])
        if old.shape[1] != streams:
            self.buffer, self.spare = self.spare, None
            self._forget_graph()
        elif self.graph is not None:
            old[..., filled, :] = self.spare[..., filled, :]  # where the graph looks for it
        else:
            self.buffer, self.spare = self.spare, old

    def nbytes(self) -> int:
        """Of the slots (in beam search there are twice as many, half of them spare)."""
        return 0 if self.buffer is None else self.buffer.numel() * self.buffer.element_size()

    def _grow(self) -> None:
        """Twice the slots, or S."""
        old, self.slots = self.buffer, min(2 * self.slots, self.span)
        self.buffer = old.new_zeros(*old.shape[:-2], self.slots, old.shape[-1])
        self.buffer[..., : self.position, :] = old
        self._forget_graph()

    def _forget_graph(self) -> None:
        self.graph: Optional[CudaGraph] = None
        self.steps = 0  # on this buffer

    def _is_captured(self, step: Callable[[Tensor], Any], x_BD: Tensor) -> bool:
        """Whether there is a graph for this step, made now if it is time."""
        # Autocast keeps cast weights to itself, and drops them at its end.
        if not self.captured or torch.is_grad_enabled() or torch.is_autocast_enabled(x_BD.device.type):
            return False
        if self.graph is not None and self.own_x_BD.dtype == x_BD.dtype:
            return True
        if self.steps < CAPTURE_AT or not can_capture(x_BD.device):
            return False
        self.own_x_BD = x_BD.clone()
        self.seen_1 = torch.full((1,), self.position, device=x_BD.device)
        self.static = True
        try:
            self.graph = CudaGraph(lambda: step(self.own_x_BD))
        except RuntimeError as error:
            stop_capturing(error)
        finally:
            self.static = False
        return self.graph is not None

    def _replay(self, x_BD: Tensor) -> Any:
        self.own_x_BD.copy_(x_BD)
        self.seen_1.fill_(self.position)
        self.graph.replay()
        return copies(self.graph.result)
