"""Where a stream's state is kept between blocks."""

from dataclasses import dataclass, field
from typing import Dict, Optional, Tuple

from fb_fairseq.modules.state import StreamState


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
