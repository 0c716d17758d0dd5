"""Finds the CUDA graph for a decoding step, or captures it.

Before a graph of kernels is used, its step is computed twice: by the graph, and by torch's operations. Kernels that
fail or compute something else are named once in the log and not used; then torch's operations are captured."""

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fb_fairseq.ops import cuda_graphs
from fb_fairseq.ops.agreement import Checks, in_fp32
from fb_fairseq.ops.cuda_graphs import GraphCache, Limits
from fb_fairseq.ops.feedback.cuda_graphs.steps import StepGraph, step_key
from fb_fairseq.ops.feedback.loop import Loop
from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, StepOutput

# A step is captured when this many steps, of any ring, have had its shapes. A capture takes as long as some steps. Each
# graph holds the slots of a ring.
LIMITS = Limits(capture_at=8, graphs=8)
MODEL, WHO = "model", "step loop: decoding steps of kernels"  # one setting, and its name in the log


class ThreadGraphs(threading.local):
    """The graphs of one thread; several threads would overwrite each other's results.

    Attributes:
        cache: the graphs.
        waiting: how many steps each ring has run without a graph that it might have had."""

    def __init__(self):
        self.cache: GraphCache[StepGraph] = GraphCache(
            lambda: LIMITS, is_held=lambda graph: False, drop=StepGraph.detach
        )
        self.waiting: WeakKeyDictionary[MemoryRing, int] = WeakKeyDictionary()


class StepGraphs(Checks):
    """The captured steps of a model."""

    def __init__(self):
        super().__init__()
        self._own = ThreadGraphs()
        self._parameters: list[Tensor] = []
        self._pointers: list[int] = []
        cuda_graphs.owners_of_graphs.add(self)

    @property
    def by_shapes(self) -> dict[tuple, StepGraph]:
        """This thread's graphs."""
        return self._own.cache.graphs

    def run(
        self,
        loop: Loop,
        kept: dict[str, Any],
        stack: Any,
        x_BD: Tensor,
        ring: MemoryRing,
        options: FeedbackOptions,
        encoder: Sequence[EncoderContext],
    ) -> StepOutput | None:
        """Run a step as a graph; None: it has none. See ``Loop.decode``."""
        if not cuda_graphs.can_capture(x_BD.device):
            return None
        graph = self._find(loop, kept, stack, x_BD, ring, options, encoder)
        return None if graph is None else graph.run(ring, x_BD, encoder)

    def _find(self, loop: Loop, kept, stack, x_BD, ring, options, encoder) -> StepGraph | None:
        """The graph for a step, with the ring's slots in its memory; it is captured now if it is time."""
        if torch.is_grad_enabled():
            ring.release()  # the slots may need a gradient from now on
            return None
        # Autocast keeps casts of weights to itself, and drops them when it ends.
        if torch.is_autocast_enabled(x_BD.device.type) or ring.buffer is None or not len(x_BD):
            return None
        if ring.graph is None and not stack.fixed_weights():
            return None
        self._forget_if_moved(stack, ring)
        cache, waiting = self._own.cache, self._own.waiting
        cache.count()
        key = step_key(x_BD, ring, options, encoder)
        make = partial(self._capture, loop, kept, stack, x_BD, ring, options, encoder)
        graph = cache.graphs.get(key)
        if graph is None:
            waiting[ring] = waiting.get(ring, 0) + 1
            graph = cache.capture(key, make)
        elif graph.is_held() and graph is not ring.graph:
            # Two sequences that share a graph would copy their slots in and out at every step.
            waiting[ring] = waiting.get(ring, 0) + 1
            if waiting[ring] < LIMITS.capture_at:
                graph = None
        if graph is not None and not graph.checked:
            graph.checked = self._check(graph, stack, x_BD, ring, options, encoder)
            graph = self.right_one(graph, MODEL, lambda: cache.capture_again(key, make))
        if graph is None:
            return None
        cache.use(key)
        if ring.graph is not graph:
            graph.hold(ring)
        waiting.pop(ring, None)
        return graph

    def _capture(self, loop: Loop, kept, stack, x_BD, ring, options, encoder) -> StepGraph:
        """A new graph: of the loop's kernels, or where these are not used, of torch's operations."""
        reference = partial(StepGraph, stack.reference_step, x_BD, ring, options, encoder)
        own = None
        if loop.covers_step(stack, x_BD, ring):
            own = partial(StepGraph, partial(loop.decode, stack, kept), x_BD, ring, options, encoder)
        return self.graph(MODEL, WHO, own, reference)

    def _check(self, graph: StepGraph, stack, x_BD, ring, options, encoder) -> bool:
        """Compare a graph's results with those of torch's operations."""
        exact = None
        if x_BD.dtype.itemsize < torch.float32.itemsize:
            weights = in_fp32(stack.step_weights(ring, x_BD.device))
            given = x_BD.float(), ring, options, in_fp32(list(encoder)), weights
            exact = partial(reference_results, stack, *given)
        own = partial(graph.try_on, ring, x_BD, encoder)
        reference = partial(reference_results, stack, x_BD, ring, options, encoder)
        return self.compare(MODEL, WHO, own, reference, x_BD.dtype, exact)

    def _forget_if_moved(self, stack, ring: MemoryRing) -> None:
        """Drop all graphs if parameters are elsewhere in memory than when they were captured."""
        if ring.graph is None:  # (takes much longer than the rest)
            self._parameters = stack.step_parameters()
        pointers = [parameter.data_ptr() for parameter in self._parameters]
        if pointers != self._pointers:
            self.clear()
            self._pointers = pointers

    def clear(self) -> None:
        """Free the graphs and their memory."""
        self._own.cache.drop_graphs()


def reference_results(stack, x_BD: Tensor, ring: MemoryRing, options, encoder, weights=None) -> list:
    """A step's output and memories by torch's operations, and the slots after it, for a ring that stays as it is."""
    own = ring.copy_for(len(x_BD), MemoryRing(ring.span))
    own.replace_buffer(own.buffer.to(x_BD.dtype))
    own.copy_rows(ring)
    result = stack.reference_step(x_BD, own, options, encoder, weights)
    return [[result.out_BD, result.memory_KBD, own.buffer]]
