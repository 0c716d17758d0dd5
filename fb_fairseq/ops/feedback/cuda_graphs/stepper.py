"""Finds the CUDA graph for a decoding step, or captures it.

Before a graph of kernels is used, its step is computed twice: by the graph, and by torch's operations. Kernels that
fail or compute something else are named once in the log and not used; then torch's operations are captured.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import threading
from functools import partial
from typing import Callable, Dict, List, Optional, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fb_fairseq.ops import fallbacks
from fb_fairseq.ops.agreement import NotFinite, disagreement, in_fp32
from fb_fairseq.ops.cuda_graphs import CaptureError, GraphCache, Limits
from fb_fairseq.ops.feedback.cuda_graphs.steps import StepGraph, step_key
from fb_fairseq.ops.feedback.decoding.ring import MemoryRing
from fb_fairseq.ops.feedback.decoding.stepper import StepModel
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, FeedbackWeights, StepOutput

# A step is captured when this many steps, of any ring, have had its shapes. A capture takes as long as some steps. Each
# graph holds the slots of a ring.
LIMITS = Limits(capture_at=8, graphs=8)
OwnStep = Callable[..., Optional[StepOutput]]  # a loop's decoding step


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


class StepGraphs:
    """The captured steps of a model.

    Attributes:
        problem: why kernels are not used for this model's steps; None: no reason is known.
    """

    def __init__(self):
        self._own, self.problem = ThreadGraphs(), None
        self._parameters: List[Tensor] = []
        self._pointers: List[int] = []
        fallbacks.owners_of_graphs.add(self)

    @property
    def by_shapes(self) -> Dict[tuple, StepGraph]:
        """This thread's graphs."""
        return self._own.cache.graphs

    def step(
        self,
        own_step: OwnStep,
        model: StepModel,
        x_BD: Tensor,
        ring: MemoryRing,
        options: FeedbackOptions,
        encoder: Sequence[EncoderContext],
    ) -> Optional[StepOutput]:
        """Run a step as a graph; None: it has none. See ``Loop.decoding_step``."""
        if not fallbacks.can_capture(x_BD.device):
            return None
        graph = self._find(own_step, model, x_BD, ring, options, encoder)
        return None if graph is None else graph.run(ring, x_BD, encoder)

    def _find(self, own_step: OwnStep, model, x_BD, ring, options, encoder) -> Optional[StepGraph]:
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
        cache, waiting = self._own.cache, self._own.waiting
        cache.count()
        key = step_key(x_BD, ring, options, encoder)
        make = partial(self._capture, own_step, model, x_BD, ring, options, encoder)
        graph = cache.graphs.get(key)
        if graph is None:
            waiting[ring] = waiting.get(ring, 0) + 1
            graph = cache.capture(key, make)
        elif graph.is_held() and graph is not ring.holder:
            # Two sequences that share a graph would copy their slots in and out at every step.
            waiting[ring] = waiting.get(ring, 0) + 1
            if waiting[ring] < LIMITS.capture_at:
                graph = None
        if graph is not None and not graph.checked:
            graph.checked = self._check(graph, model, x_BD, ring, options, encoder)
            if not graph.checked:
                graph = None
                if self.problem is not None:
                    cache.drop(key)
                    graph = cache.capture(key, make)
        if graph is None:
            return None
        cache.use(key)
        if ring.holder is not graph:
            graph.hold(ring)
        waiting.pop(ring, None)
        return graph

    def _capture(self, own_step: OwnStep, model, x_BD, ring, options, encoder) -> StepGraph:
        """A new graph: of the loop's kernels, or where these are not used, of torch's operations."""
        given = ring, x_BD, options, encoder
        if self.problem is None:
            chosen = Chosen(own_step, model)
            try:
                graph = StepGraph(chosen, *given)
                graph.checked = not chosen.own  # torch's operations need no check
                return graph
            except CaptureError:
                raise
            except Exception as error:  # a kernel that does not compile
                if not chosen.own:
                    raise
                self._refuse(f"failed: {fallbacks.first_line(error)}")
        graph = StepGraph(model.plain_step, *given)
        graph.checked = True
        return graph

    def _check(self, graph: StepGraph, model, x_BD, ring, options, encoder) -> bool:
        """Compare a graph's results with those of torch's operations. Returns whether they are right. If torch's are
        not finite, nothing is known, and the next step is compared."""
        exact = None
        if x_BD.dtype.itemsize < torch.float32.itemsize:
            wide = StepsInFp32(model)
            exact = partial(plain_results, wide, x_BD.float(), ring, options, in_fp32(list(encoder)))
        plain = partial(plain_results, model, x_BD, ring, options, encoder)
        try:
            problem = disagreement(lambda: graph.try_on(ring, x_BD, encoder), plain, x_BD.dtype, exact)
        except NotFinite:
            return False
        if problem is not None:
            self._refuse(problem)
        return problem is None

    def _refuse(self, problem: str) -> None:
        """Do not use kernels for this model; log it once."""
        self.problem = problem
        fallbacks.log_once(f"step loop: decoding steps of kernels: {problem}; torch's operations run, as CUDA graphs")

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


class Chosen:
    """A step of the loop's kernels, or where they do not cover it, of torch's operations.

    Attributes:
        own: whether the last step was the loop's.
    """

    def __init__(self, own_step: OwnStep, model: StepModel):
        self._own_step, self._model, self.own = own_step, model, False

    def __call__(self, x_BD, ring, options, encoder) -> StepOutput:
        self.own = True
        output = self._own_step(self._model, x_BD, ring, options, encoder)
        self.own = output is not None
        return output if self.own else self._model.plain_step(x_BD, ring, options, encoder)


class StepsInFp32:
    """A model whose plain steps are computed in fp32, whatever the type of its weights."""

    def __init__(self, model: StepModel):
        self._model = model

    def __getattr__(self, name: str):
        return getattr(self._model, name)

    def step_weights(self, *arguments) -> FeedbackWeights:
        """See ``StepModel``."""
        return in_fp32(self._model.step_weights(*arguments))

    def plain_step(self, *arguments) -> StepOutput:
        """See ``StepModel``."""
        return type(self._model).plain_step(self, *arguments)


def plain_results(model, x_BD: Tensor, ring: MemoryRing, options: FeedbackOptions, encoder) -> list:
    """A step's output and memories by torch's operations, and the slots after it, for a ring that stays as it is."""
    own = ring.copy_for(len(x_BD), MemoryRing(ring.span))
    own.replace_buffer(own.buffer.to(x_BD.dtype))
    own.copy_rows(ring)
    result = model.plain_step(x_BD, own, options, encoder)
    return [[result.out_BD, result.memory_KBD, own.buffer]]
