"""Which CUDA graphs are kept: few, of what comes often."""

from collections import Counter
from typing import Callable, Dict, Generic, NamedTuple, Optional, Tuple, TypeVar

from fb_fairseq.ops.fallbacks import disable_capturing

Graph = TypeVar("Graph")


class Limits(NamedTuple):
    """When a graph is captured, and when it may go.

    Attributes:
        capture_at: something is captured when so many of a window have had its key. What is rare is not worth it.
        graphs: the most that are kept; each holds memory.
        window: uses are counted in windows of this many. A graph that was not used for as long may be replaced.
    """

    capture_at: int
    graphs: int
    window: int = 1000


class GraphCache(Generic[Graph]):
    """Graphs by key: everything that a capture depends on, except the values of tensors.

    A graph is replaced only if it was not used for a window: if more keys alternate than there is room for, capturing
    graphs again and again would cost more than it saves.

    Args:
        limits: returns the limits.
        is_held: whether something still needs what is in a graph's memory.
        drop: called for each graph that goes.

    Attributes:
        graphs: by key.
    """

    def __init__(
        self,
        limits: Callable[[], Limits],
        is_held: Callable[[Graph], bool],
        drop: Callable[[Graph], None] = lambda graph: None,
    ):
        self.graphs: Dict[Tuple, Graph] = {}
        self._limits, self._is_held, self._drop = limits, is_held, drop
        self._uses, self._seen, self._last_used = 0, Counter(), {}

    def count(self) -> None:
        """Count a use, with or without a graph."""
        self._uses += 1
        if self._uses % self._limits().window == 0:
            self._seen.clear()

    def capture(self, key: Tuple, make: Callable[[], Graph]) -> Tuple[Optional[Graph], Optional[str]]:
        """Capture a graph for a key that has none, if it is time and there is room.

        Returns:
            The graph or None, and in the latter case the reason.
        """
        limits = self._limits()
        self._seen[key] += 1
        if self._seen[key] < limits.capture_at:
            return None, f"its shapes are new (they are captured when they have come {limits.capture_at} times)"
        if not self._make_room(limits):
            return None, f"there is no room: {limits.graphs} graphs of other shapes are in use"
        try:
            self.graphs[key] = make()
        except Exception as error:  # out of memory; a kernel that does not compile
            disable_capturing(error)
            return None, "capturing has failed"
        return self.graphs[key], None

    def use(self, key: Tuple) -> None:
        """Note that a key's graph is used now."""
        self._last_used[key] = self._uses

    def _make_room(self, limits: Limits) -> bool:
        """Drop graphs that were not used for a window. Returns whether there is room for another one."""
        oldest = self._uses - limits.window
        for key in [key for key in self.graphs if self._last_used.get(key, 0) < oldest]:
            if not self._is_held(self.graphs[key]):
                self._drop(self.graphs.pop(key))
        return len(self.graphs) < limits.graphs

    def drop_graphs(self) -> None:
        """Free the graphs and their memory. What came often is captured again at once."""
        for graph in self.graphs.values():
            self._drop(graph)
        self.graphs.clear()
        self._last_used.clear()

    def clear(self) -> None:
        """Free the graphs, and begin to count anew."""
        self.drop_graphs()
        self._seen.clear()
