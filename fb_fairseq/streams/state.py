"""The memory of streams between two blocks, in fairseq's training and in that of transformers."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fb_fairseq.modules.interface import StreamState


class StateStore:
    """The states of all streams during one pass over a split.

    A state is stored under its cohort (streams that are always in the same batch, see ``StreamLayout``) and offset (how
    many steps of the streams were read before). The state before a block is kept until ``drop_before`` is called for
    the next block. Until then a block can be run again, for example after a gradient overflow, from the same state.
    """

    def __init__(self):
        self._states: dict[Hashable, dict[int, StreamState]] = {}

    def read(self, cohort: Hashable, offset: int) -> StreamState | None:
        """The state of a cohort before the block at ``offset``; None if it is not stored."""
        return self._states.get(cohort, {}).get(offset)

    def write(self, cohort: Hashable, offset: int, state: StreamState) -> None:
        """Store the state of a cohort before the block at ``offset``."""
        self._states.setdefault(cohort, {})[offset] = state

    def latest(self, cohort: Hashable) -> int | None:
        """The offset of a cohort's last state; None if none is stored."""
        return max(self._states.get(cohort, ()), default=None)

    def drop_before(self, cohorts: Sequence[Hashable], offset: float) -> None:
        """Drop the states of these cohorts before earlier blocks, which will not be run again."""
        for cohort in cohorts:
            states = self._states.get(cohort, {})
            for earlier in [o for o in states if o < offset]:
                del states[earlier]


class CarriesMemory:
    """Base class of models that carry memory from block to block: ``forward`` takes a ``StateHandle`` as ``stream``."""

    def before_train_step(self, sample: Any) -> None:
        """Called by ``streaming_lm`` before each training step, with fairseq's batch."""


@dataclass(frozen=True)
class StateHandle:
    """Gives a model the state before one block, and stores the state after it.

    ``StreamBatchIterator`` passes it to the model as the argument ``stream``. It is a class of its own because fairseq,
    when it moves a batch to the GPU, rebuilds dicts and tuples, but leaves unknown objects alone.

    Attributes:
        store: where the states are kept.
        cohorts: the streams in the batch: cohorts of equal size, one after the other.
        offset: how many steps of these streams were read before this block.
    """

    store: StateStore = field(repr=False)
    cohorts: tuple[Hashable, ...]
    offset: int

    def read(self) -> StreamState | None:
        """The state before this block; None (start with an empty memory) at the start of streams or if it was lost."""
        states = [self.store.read(cohort, self.offset) for cohort in self.cohorts]
        return None if any(state is None for state in states) else StreamState.joined(states)

    def write(self, state: StreamState, steps: int) -> None:
        """Store the state after this block of ``steps`` steps, for the next block."""
        for cohort, part in zip(self.cohorts, state.split(len(self.cohorts))):
            self.store.write(cohort, self.offset + steps, part)
