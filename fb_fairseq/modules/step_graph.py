"""A decoding step, run operation by operation or as a CUDA graph."""

from typing import Any, Callable, ContextManager, Optional, Protocol

import torch
from torch import Tensor

from fb_fairseq.ops.cuda_graph import CudaGraph, cloned
from fb_fairseq.ops.fallbacks import can_capture, disable_capturing

# A step is captured after this many steps on the same slots and streams. A capture takes as long as some steps, and the
# first steps may be all there are.
CAPTURE_AT = 8


class Counter(Protocol):
    """The number of steps that a memory has seen, in Python and for captured steps on the device; see
    ``fb_fairseq.modules.ring.StepCounter``."""

    def advance(self) -> None:
        """Count a step."""

    def before_replay(self) -> None:
        """Tell a captured step how many steps came before it."""

    def capturing(self, device: torch.device) -> ContextManager[None]:
        """Context in which a step is captured."""


class StepGraph:
    """Captures a step once it has run often enough on the same memory, and replays it from then on.

    Args:
        counter: counts the steps of the memory that the step works on.

    Attributes:
        graph: the captured step; None as long as steps run operation by operation.
    """

    def __init__(self, counter: Counter):
        self.counter = counter
        self.forget()

    def forget(self) -> None:
        """Drop the graph: the memory that it reads and writes is no longer in use."""
        self.graph: Optional[CudaGraph] = None
        self._steps = 0

    def run(self, step: Callable[[Tensor], Any], x_BD: Tensor) -> Any:
        """Run one step; see ``fb_fairseq.modules.ring.MemoryRing.run``."""
        result = self._replay(x_BD) if self._is_ready(step, x_BD) else step(x_BD)
        self._steps += 1
        return result

    def _is_ready(self, step: Callable[[Tensor], Any], x_BD: Tensor) -> bool:
        """Whether there is a graph for this step; it is captured now if it is time."""
        # Autocast keeps casts of weights to itself, and drops them when it ends.
        if torch.is_grad_enabled() or torch.is_autocast_enabled(x_BD.device.type):
            return False
        if self.graph is not None and self._own_x_BD.dtype == x_BD.dtype:
            return True
        if self._steps < CAPTURE_AT or not can_capture(x_BD.device):
            return False
        self._own_x_BD = x_BD.clone()
        with self.counter.capturing(x_BD.device):
            try:
                self.graph = CudaGraph(lambda: step(self._own_x_BD))
            except RuntimeError as error:
                disable_capturing(error)
        return self.graph is not None

    def _replay(self, x_BD: Tensor) -> Any:
        self._own_x_BD.copy_(x_BD)
        self.counter.before_replay()
        self.graph.replay()
        self.counter.advance()
        return cloned(self.graph.result)
