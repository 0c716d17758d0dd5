"""A stream's state goes into a model and comes out; nothing of a stream lies on a module.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor


@dataclass
class StreamState:
    """What B streams carry from one block to the next: constants, without gradient.

    memory_KCBD: vectors of the last C <= S steps, oldest first, before norm and projections. Feedback memory:
        the memories m (K = 1, or L where every layer has its own). Relative Transformer: the inputs of its L layers.
    """

    memory_KCBD: Tensor

    @staticmethod
    def entering(state: Optional["StreamState"], memories: int, span: int, x_TBD: Tensor) -> "StreamState":
        """The state that a block of these embeddings starts with, in their type and on their device.

        Args:
            state: what the block before left; None at the start of streams. Slots beyond the span are left away.
            memories: K of the model.

        Raises:
            ValueError: the state is another model's, or of other streams.
        """
        K, (B, D) = memories, x_TBD.shape[1:]
        if state is None:
            return StreamState(x_TBD.new_zeros(K, 0, B, D))
        shape = state.memory_KCBD.shape
        if (shape[0], shape[2], shape[3]) != (K, B, D):
            raise ValueError(
                f"the streams' memory has {shape[0]} vectors a step, {shape[2]} streams and width {shape[3]}; "
                f"the model needs {K}, {B} and {D}: start with an empty memory (--reset-dataloader)"
            )
        return StreamState(state.memory_KCBD[:, -span:].to(x_TBD))

    def extended(self, new_KTBD: Tensor, span: int) -> "StreamState":
        """The state after a block whose steps left these memories."""
        memory = torch.cat([self.memory_KCBD, new_KTBD.detach()], 1)[:, -span:]
        # A copy of its own: the slice would keep all of the block alive.
        return StreamState(memory.clone())


    def split(self, parts: int) -> List["StreamState"]:
        """The states of each ``B / parts`` streams, in order (views)."""
        return [StreamState(memory) for memory in self.memory_KCBD.chunk(parts, 2)]

    @staticmethod
    def joined(states: Sequence["StreamState"]) -> "StreamState":
        """The state of all these streams side by side; they carry equally many steps."""
        return states[0] if len(states) == 1 else StreamState(torch.cat([state.memory_KCBD for state in states], 2))


@dataclass(frozen=True)
class BlockPlace:
    """Where in its split a block of streams stands, and where its state is kept.

    fairseq hands this object through ``net_input`` untouched, where it rebuilds dicts and tuples.
    """

    store: "StateStore" = field(repr=False)
    split: str
    epoch: int
    cohorts: Tuple[int, ...]  # the streams: cohorts of equal size, side by side
    offset: int  # steps of these streams before this block

    def read(self) -> Optional[StreamState]:
        """The state before this block; None at the start of a stream, and where it was lost: memory starts empty."""
        states = [self.store.read(cohort, self.offset) for cohort in self.cohorts]
        return None if any(state is None for state in states) else StreamState.joined(states)

    def write(self, state: StreamState, steps: int) -> None:
        """Keep the state after this block, of that many steps, for the next one."""
        for cohort, part in zip(self.cohorts, state.split(len(self.cohorts))):
            self.store.write(cohort, self.offset + steps, part)


class StateStore:
    """The states of one pass over one split, by cohort (streams that never part) and offset.

    The state before a block stays until the next block is read: a block that is run twice (gradient overflow,
    out of memory) starts twice from the same state.
    """

    def __init__(self):
        self._states: Dict[int, Dict[int, StreamState]] = {}

    def read(self, cohort: int, offset: int) -> Optional[StreamState]:
        states = self._states.get(cohort, {})
        for passed in [o for o in states if o < offset]:
            del states[passed]
        return states.get(offset)

    def write(self, cohort: int, offset: int, state: StreamState) -> None:
        self._states.setdefault(cohort, {})[offset] = state

    def at(self, offsets: Dict[int, int]) -> Dict[int, StreamState]:
        """The states of cohorts before the blocks at their offsets, for a checkpoint; those that are there."""
        found = {cohort: self._states.get(cohort, {}).get(offset) for cohort, offset in offsets.items()}
        return {cohort: state for cohort, state in found.items() if state is not None}
