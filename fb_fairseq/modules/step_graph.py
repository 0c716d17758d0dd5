"""A decoding step on a memory ring, run operation by operation or as a CUDA graph."""

from typing import Any, Callable, Optional

import torch
from torch import Tensor

from fb_fairseq.ops.cuda_graph import CudaGraph, cloned
from fb_fairseq.ops.fallbacks import can_capture, disable_capturing

# A step is captured after this many steps on the same slots and streams. A capture takes as long as some steps, and the
# first steps may be all there are.
CAPTURE_AT = 8


class StepGraph:
    """Captures a step once it has run often enough on the same memory, and replays it from then on.

    Attributes:
        graph: the captured step; None as long as steps run operation by operation.
    """

    def __init__(self):
        self.forget()

    def forget(self) -> None:
        """Drop the graph: the memory that it reads and writes is no longer the ring's."""
        self.graph: Optional[CudaGraph] = None
        self._steps = 0

    def run(self, step: Callable[[Tensor], Any], x_BD: Tensor, ring) -> Any:
        """Run one step; see ``run_step``."""
        result = self._replay(x_BD, ring) if self._is_ready(step, x_BD, ring) else step(x_BD)
        self._steps += 1
        return result

    def _is_ready(self, step: Callable[[Tensor], Any], x_BD: Tensor, ring) -> bool:
        """Whether there is a graph for this step; it is captured now if it is time."""
        # Autocast keeps casts of weights to itself, and drops them when it ends.
        if torch.is_grad_enabled() or torch.is_autocast_enabled(x_BD.device.type):
            return False
        if self.graph is not None and self._own_x_BD.dtype == x_BD.dtype:
            return True
        if self._steps < CAPTURE_AT or not can_capture(x_BD.device):
            return False
        self._own_x_BD = x_BD.clone()
        with ring.position_on_device(x_BD.device):
            try:
                self.graph = CudaGraph(lambda: step(self._own_x_BD))
            except RuntimeError as error:
                disable_capturing(error)
        return self.graph is not None

    def _replay(self, x_BD: Tensor, ring) -> Any:
        self._own_x_BD.copy_(x_BD)
        ring.seen_1.fill_(ring.position)
        self.graph.replay()
        ring.position += 1
        return cloned(self.graph.result)


def run_step(step: Callable[[Tensor], Any], x_BD: Tensor, ring) -> Any:
    """Run one decoding step on a ring.

    Args:
        step: a function of the step's embedding that attends to ``ring.windows`` and calls ``ring.push`` once.
        ring: a ``fb_fairseq.modules.ring.MemoryRing``.
    """
    ring.make_room()
    return step(x_BD) if ring.capture is None else ring.capture.run(step, x_BD, ring)
