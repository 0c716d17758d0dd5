"""Finds the CUDA graph for a decoding step, or captures it.

Before a graph of kernels is used, its step is computed twice: by the graph, and by torch's operations. Kernels that
fail or compute something else are named once in the log and not used; then torch's operations are captured."""

import threading
from collections.abc import Callable
from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fb_fairseq.ops import cuda_graphs
from fb_fairseq.ops.agreement import Checks, in_fp32
from fb_fairseq.ops.cuda_graphs import CaptureError, GraphCache, Limits
from fb_fairseq.ops.feedback.cuda_graphs.steps import StepGraph, step_key
from fb_fairseq.ops.feedback.decoding import Step, StepModel
from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.types import FeedbackWeights, StepOutput

# A step is captured when this many steps, of any ring, have had its shapes. A capture takes as long as some steps. Each
# graph holds the slots of a ring.
LIMITS = Limits(capture_at=8, graphs=8)
MODEL, WHO = "model", "step loop: decoding steps of kernels"  # one setting, and its name in the log
OwnStep = Callable[[Step], StepOutput | None]  # a loop's decoding step


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

    def run(self, step: Step, own_step: OwnStep) -> StepOutput | None:
        """Run a step as a graph; None: it has none. See ``Loop.decoding_step``."""
        if not cuda_graphs.can_capture(step.x_BD.device):
            return None
        graph = self._find(step, own_step)
        return None if graph is None else graph.run(step.ring, step.x_BD, step.encoder)

    def _find(self, step: Step, own_step: OwnStep) -> StepGraph | None:
        """The graph for a step, with the ring's slots in its memory; it is captured now if it is time."""
        model, x_BD, ring, options, encoder = step
        if torch.is_grad_enabled():
            ring.release()  # the slots may need a gradient from now on
            return None
        # Autocast keeps casts of weights to itself, and drops them when it ends.
        if torch.is_autocast_enabled(x_BD.device.type) or ring.buffer is None or not len(x_BD):
            return None
        if ring.graph is None and not model.fixed_weights():
            return None
        self._forget_if_moved(model, ring)
        cache, waiting = self._own.cache, self._own.waiting
        cache.count()
        key = step_key(x_BD, ring, options, encoder)
        make = partial(self._capture, step, own_step)
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
            graph.checked = self._check(graph, step)
            graph = self.right_one(graph, MODEL, lambda: cache.capture_again(key, make))
        if graph is None:
            return None
        cache.use(key)
        if ring.graph is not graph:
            graph.hold(ring)
        waiting.pop(ring, None)
        return graph

    def _capture(self, step: Step, own_step: OwnStep) -> StepGraph:
        """A new graph: of the loop's kernels, or where these are not used, of torch's operations."""
        model, given, by_kernels = step.model, step[1:], [False]

        def run(*given) -> StepOutput:
            by_kernels[0] = True
            output = own_step(Step(model, *given))
            by_kernels[0] = output is not None
            return model.reference_step(*given) if output is None else output

        def own() -> StepGraph:
            try:
                graph = StepGraph(run, *given)
            except Exception as error:
                if by_kernels[0]:
                    raise
                raise CaptureError(str(error)) from error
            graph.checked = not by_kernels[0]  # torch's operations need no check
            return graph

        return self.graph(MODEL, WHO, own, partial(StepGraph, model.reference_step, *given))

    def _check(self, graph: StepGraph, step: Step) -> bool:
        """Compare a graph's results with those of torch's operations."""
        x_BD, exact = step.x_BD, None
        if x_BD.dtype.itemsize < torch.float32.itemsize:
            wide = Step(StepsInFp32(step.model), x_BD.float(), step.ring, step.options, in_fp32(list(step.encoder)))
            exact = partial(reference_results, wide)
        own = partial(graph.try_on, step.ring, x_BD, step.encoder)
        return self.compare(MODEL, WHO, own, partial(reference_results, step), x_BD.dtype, exact)

    def _forget_if_moved(self, model, ring: MemoryRing) -> None:
        """Drop all graphs if parameters are elsewhere in memory than when they were captured."""
        if ring.graph is None:  # (takes much longer than the rest)
            self._parameters = model.step_parameters()
        pointers = [parameter.data_ptr() for parameter in self._parameters]
        if pointers != self._pointers:
            self.clear()
            self._pointers = pointers

    def clear(self) -> None:
        """Free the graphs and their memory."""
        self._own.cache.drop_graphs()


class StepsInFp32:
    """A model whose reference steps are computed in fp32, whatever the type of its weights."""

    def __init__(self, model: StepModel):
        self._model = model

    def __getattr__(self, name: str):
        return getattr(self._model, name)

    def step_weights(self, *arguments) -> FeedbackWeights:
        """The model's weights in fp32."""
        return in_fp32(self._model.step_weights(*arguments))

    def reference_step(self, *arguments) -> StepOutput:
        """The model's step, with these weights."""
        return type(self._model).reference_step(self, *arguments)


def reference_results(step: Step) -> list:
    """A step's output and memories by torch's operations, and the slots after it, for a ring that stays as it is."""
    own = step.ring.copy_for(len(step.x_BD), MemoryRing(step.ring.span))
    own.replace_buffer(own.buffer.to(step.x_BD.dtype))
    own.copy_rows(step.ring)
    result = step.model.reference_step(step.x_BD, own, step.options, step.encoder)
    return [[result.out_BD, result.memory_KBD, own.buffer]]
