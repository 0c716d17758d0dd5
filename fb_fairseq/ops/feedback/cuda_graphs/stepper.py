"""Finds the CUDA graph for a decoding step, or captures it.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import threading
from typing import Callable, Dict, List, Optional
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fb_fairseq.ops import fallbacks
from fb_fairseq.ops.feedback.cuda_graphs.steps import StepGraph, step_key
from fb_fairseq.ops.feedback.decoding.ring import MemoryRing
from fb_fairseq.ops.feedback.decoding.stepper import PlainStepper, Stepper
from fb_fairseq.ops.feedback.types import StepOutput
from fb_fairseq.ops.graph_cache import GraphCache, Limits

# A step is captured when this many steps, of any ring, have had its shapes. A capture takes as long as some steps. Each
# graph holds the slots of a ring.
LIMITS = Limits(capture_at=8, graphs=8)


class ThreadGraphs(threading.local):
    """The graphs of one thread; several threads would overwrite each other's results.

    Attributes:
        cache: the graphs.
        waiting: how many steps each ring has run without a graph that it might have had.
    """

    def __init__(self):
        self.cache: GraphCache[StepGraph] = GraphCache(
            lambda: LIMITS, is_held=lambda graph: False, drop=StepGraph.detach
        )
        self.waiting: "WeakKeyDictionary[MemoryRing, int]" = WeakKeyDictionary()


class GraphStepper(Stepper):
    """The captured steps of a model. Steps without a graph run operation by operation.

    Args:
        step_of: what is captured of a model: ``step_of(model, x_BD, ring, options, encoder)`` returns a function of
            the last four.
        asked: whether graphs were asked for; then it is worth a line in the log that a step has none.
    """

    def __init__(self, step_of: Callable[..., Callable[..., StepOutput]], asked: bool = True):
        self._step_of, self._asked, self._plain, self._own = step_of, asked, PlainStepper(), ThreadGraphs()
        self._parameters: List[Tensor] = []
        self._pointers: List[int] = []
        fallbacks.owners_of_graphs.add(self)

    def __reduce__(self):
        return type(self), (self._step_of, self._asked)  # a copy of a model captures its own steps

    @property
    def graphs(self) -> Dict[tuple, StepGraph]:
        """This thread's graphs, by shapes."""
        return self._own.cache.graphs

    def step(self, model, x_BD, ring, options, encoder=()) -> StepOutput:
        """See ``Stepper.step``."""
        if fallbacks.can_capture(x_BD.device):
            graph = self._find(model, x_BD, ring, options, encoder)
            if graph is not None:
                return graph.run(ring, x_BD, encoder)
        return self._plain.step(model, x_BD, ring, options, encoder)

    def _find(self, model, x_BD, ring, options, encoder) -> Optional[StepGraph]:
        """The graph for a step, with the ring's slots in its memory; it is captured now if it is time."""
        if torch.is_grad_enabled():
            ring.release()  # the slots may need a gradient from now on
            return None
        # Autocast keeps casts of weights to itself, and drops them when it ends.
        if torch.is_autocast_enabled(x_BD.device.type) or ring.buffer is None or not len(x_BD):
            return None
        if not isinstance(ring.holder, StepGraph) and not model.fixed_weights():
            return None
        self._forget_if_moved(model, ring)
        cache, waiting, reason = self._own.cache, self._own.waiting, None
        cache.count()
        key = step_key(x_BD, ring, options, encoder)
        graph = cache.graphs.get(key)
        if graph is None:
            waiting[ring] = waiting.get(ring, 0) + 1
            arguments = ring, x_BD, options, encoder
            graph, reason = cache.capture(
                key, lambda: StepGraph(self._step_of(model, x_BD, ring, options, encoder), *arguments)
            )
        elif graph.is_held() and graph is not ring.holder:
            # Rings that take turns would move each other's slots at each step.
            waiting[ring] = waiting.get(ring, 0) + 1
            if waiting[ring] < LIMITS.capture_at:
                graph, reason = None, "another sequence's steps use its graph"
        if graph is None:
            if self._asked:
                fallbacks.log_once(f"--step-loop triton: a decoding step runs operation by operation, because {reason}")
            return None
        cache.use(key)
        if ring.holder is not graph:
            graph.hold(ring)
        waiting.pop(ring, None)
        return graph

    def _forget_if_moved(self, model, ring: MemoryRing) -> None:
        """Drop all graphs if parameters are elsewhere in memory than when they were captured."""
        if not isinstance(ring.holder, StepGraph):  # (takes much longer than the rest)
            self._parameters = model.step_parameters()
        pointers = [parameter.data_ptr() for parameter in self._parameters]
        if pointers != self._pointers:
            self.clear()
            self._pointers = pointers

    def clear(self) -> None:
        """Free the graphs and their memory."""
        self._own.cache.drop_graphs()
