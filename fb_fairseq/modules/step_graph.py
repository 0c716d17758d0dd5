"""Decoding steps as CUDA graphs.

A captured step works on memory of its own: a ring of slots, keys and values of an encoder's output, and the step's
embedding. It serves every ring of the same shapes, one at a time: a ring's slots lie in the graph's memory as long as
its steps are replayed. So that few shapes occur, slots double (``fb_fairseq.modules.ring``), and rows and source
positions are rounded up.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import threading
import weakref
from collections import Counter
from functools import partial
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fb_fairseq.modules.ring import MemoryRing
from fb_fairseq.ops import fallbacks
from fb_fairseq.ops.cuda_graph import CudaGraph, cloned, copy_all, current_device, modes_of_products, reusable_memory
from fb_fairseq.ops.feedback.automatic import loop_and_kernel
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, StepOutput
from fb_fairseq.ops.trials import Choices, ranking

# A step is captured when this many steps, of any ring, have had its shapes. A capture takes as long as some steps.
CAPTURE_AT = 8
MAX_GRAPHS = 8  # each holds the slots of a ring
CAPTURE_WINDOW_STEPS = 1000
SOURCE_MULTIPLE = 32  # source positions are padded to a multiple of this

# Runs a step on a ring: (x_BD, ring, options, encoder).
Step = Callable[[Tensor, MemoryRing, FeedbackOptions, Sequence[EncoderContext]], StepOutput]


class CapturedStep:
    """A captured step and its memory.

    Args:
        step: what is captured.
        ring, x_BD, options, encoder: a step's arguments, for their shapes.

    Attributes:
        holder: a weak reference to the ring whose slots lie in this memory.
        rows: number of rows B of the captured step.
    """

    @reusable_memory()
    def __init__(
        self,
        step: Step,
        ring: MemoryRing,
        x_BD: Tensor,
        options: FeedbackOptions,
        encoder: Sequence[EncoderContext],
    ):
        self.rows = padded_rows(len(x_BD), encoder)
        self.holder: Callable[[], Optional[MemoryRing]] = lambda: None
        self._x_BD = x_BD.new_zeros(self.rows, x_BD.shape[1])
        self._encoder = [padded_context(context, self.rows // hypotheses(len(x_BD), encoder)) for context in encoder]
        self._given: Callable[[], Optional[Tensor]] = lambda: None  # a weak reference to the keys in self._encoder
        self._ring = ring.empty_copy(self.rows)
        self._copy(ring, encoder)
        run = partial(step, self._x_BD, self._ring, options, self._encoder)
        with self._ring.counter.capturing(x_BD.device):
            run()  # libraries set themselves up in a first call, which must not be captured
            with current_device(x_BD.device):
                self.graph = CudaGraph(run)

    def attach(self, ring: MemoryRing) -> None:
        """Move a ring's slots to this memory; the ring that had its slots here gets memory of its own again."""
        self.detach()
        self._ring.copy_rows(ring)
        ring.move_to(self._ring)
        ring.captured, self.holder = self, weakref.ref(ring)

    def detach(self) -> None:
        """Move the slots that lie here away."""
        ring = self.holder()
        if ring is not None and ring.captured is self:
            ring.move_away()

    def is_held(self) -> bool:
        """Whether a ring's slots lie here."""
        ring = self.holder()
        return ring is not None and ring.captured is self

    def run(self, ring: MemoryRing, x_BD: Tensor, encoder: Sequence[EncoderContext]) -> StepOutput:
        """Replay the step for a ring whose slots lie here."""
        if encoder and encoder[0].keys_CBHE is not self._given():  # reordered, or another batch's
            self._copy_encoder(encoder)
        self._x_BD[: len(x_BD)].copy_(x_BD)
        result = self.replay(ring.position)
        ring.counter.advance()  # (the replay counts the episodes' ages)
        sources = encoder[0].keys_CBHE.shape[0] if encoder else 0
        aligned_BC = result.aligned_BC
        if aligned_BC is not None:
            aligned_BC = aligned_BC[: len(x_BD), :sources]
        return cloned(StepOutput(result.out_BD[: len(x_BD)], result.memory_KBD[:, : len(x_BD)], aligned_BC))

    def replay(self, position: int) -> StepOutput:
        """Replay the step after ``position`` others; its result is overwritten by the next replay."""
        self._ring.counter.before_replay(position)
        self.graph.replay()
        return self.graph.result

    def try_on(self, ring: MemoryRing, x_BD: Tensor, encoder: Sequence[EncoderContext]) -> List[Tensor]:
        """The step's output and memories, and the slots after it, for a ring that stays as it is."""
        self._copy(ring, encoder)
        self._x_BD[: len(x_BD)].copy_(x_BD)
        result = self.replay(ring.position)
        return [result.out_BD[: len(x_BD)], result.memory_KBD[:, : len(x_BD)], self._ring.buffer[:, : len(x_BD)]]

    def _copy(self, ring: MemoryRing, encoder: Sequence[EncoderContext]) -> None:
        self._ring.copy_rows(ring)
        self._copy_encoder(encoder)

    def _copy_encoder(self, encoder: Sequence[EncoderContext]) -> None:
        """Copy keys and values of the encoder's output; other source positions are padding."""
        pairs = []
        for own, given in zip(self._encoder, encoder):
            sources, sentences = given.keys_CBHE.shape[:2]
            own.keys_CBHE[sources:].zero_()  # what is hidden still counts if it is not finite
            own.values_CBHE[sources:].zero_()
            own.padding_BC.zero_()
            own.padding_BC[:sentences, sources:] = True
            if given.padding_BC is not None:
                own.padding_BC[:sentences, :sources] = given.padding_BC
            pairs += [(own.keys_CBHE[:sources, :sentences], given.keys_CBHE)]
            pairs += [(own.values_CBHE[:sources, :sentences], given.values_CBHE)]
        copy_all(pairs)
        if encoder:
            self._given = weakref.ref(encoder[0].keys_CBHE)


class ThreadGraphs(threading.local):
    """The graphs of one thread, by shapes; several threads would overwrite each other's results.

    Attributes:
        last_used: number of the step.
        steps: number of steps so far.
        seen: steps by shapes, in this window.
    """

    def __init__(self):
        self.graphs: Dict[Tuple, CapturedStep] = {}
        self.last_used: Dict[Tuple, int] = {}
        self.steps, self.seen = 0, Counter()


class StepGraphs:
    """The captured steps of a stack, at most ``MAX_GRAPHS`` per thread.

    A graph is replaced only if it was not used for a window of steps: capturing takes as long as many steps.

    Args:
        automatic: capture steps only if that is faster and agrees, and choose the kernel (``--step-loop auto``).
    """

    def __init__(self, automatic: bool):
        self.automatic = automatic
        self.rankings = Choices("decoding step", otherwise="fast")
        self._own = ThreadGraphs()
        self._parameters: List[Tensor] = []
        self._pointers: List[int] = []
        fallbacks.owners_of_graphs.add(self)

    @property
    def graphs(self) -> Dict[Tuple, CapturedStep]:
        """This thread's graphs."""
        return self._own.graphs

    def __reduce__(self):
        return StepGraphs, (self.automatic,)  # a copy of a model captures its own steps

    def run(
        self, stack, x_BD: Tensor, ring: MemoryRing, options: FeedbackOptions, encoder: Sequence[EncoderContext]
    ) -> StepOutput:
        """Run a step, as a graph if there is one for it; see ``TransformerStack.decode_step``."""
        graph = self._find(stack, x_BD, ring, options, encoder)
        if graph is None:
            return stack.step(x_BD, ring, options, encoder)
        return graph.run(ring, x_BD, encoder)

    def _find(self, stack, x_BD, ring, options, encoder) -> Optional[CapturedStep]:
        """The graph for a step, with the ring's slots in its memory; it is captured now if it is time."""
        if torch.is_grad_enabled():
            ring.move_away()  # the slots may need a gradient from now on
            return None
        # Autocast keeps casts of weights to itself, and drops them when it ends.
        if torch.is_autocast_enabled(x_BD.device.type) or ring.buffer is None or not len(x_BD):
            return None
        self._forget_if_moved(stack, ring)
        own = self._own
        own.steps += 1
        if own.steps % CAPTURE_WINDOW_STEPS == 0:
            own.seen.clear()
        key = shapes(x_BD, ring, options, encoder)
        graph = self.graphs.get(key)
        if graph is None or (graph.is_held() and graph is not ring.captured):
            # Rings that take turns would move each other's slots at each step.
            ring.steps_without_graph += 1
            if graph is None:
                graph = self._capture(key, stack, x_BD, ring, options, encoder)
            elif ring.steps_without_graph < CAPTURE_AT:
                return None
        if graph is not None:
            own.last_used[key] = own.steps
            if ring.captured is not graph:
                graph.attach(ring)
            ring.steps_without_graph = 0
        return graph

    def possible(self, device: torch.device) -> bool:
        """Whether steps can be captured on a device."""
        return (not self.automatic or device.type in fallbacks.GRAPH_DEVICES) and fallbacks.can_capture(device)

    def _forget_if_moved(self, stack, ring: MemoryRing) -> None:
        """Drop all graphs if parameters are elsewhere in memory than when they were captured."""
        if ring.captured is None:  # (takes much longer than the rest)
            self._parameters = stack.step_parameters()
        pointers = [parameter.data_ptr() for parameter in self._parameters]
        if pointers != self._pointers:
            self.clear()
            self._pointers = pointers

    def clear(self) -> None:
        """Free the graphs and their memory."""
        for graph in self.graphs.values():
            graph.detach()
        self.graphs.clear()
        self._own.last_used.clear()

    def _capture(self, key, stack, x_BD, ring, options, encoder) -> Optional[CapturedStep]:
        """Capture a step if its shapes have come often enough, and a graph is wanted and possible."""
        self._own.seen[key] += 1
        if self._own.seen[key] < CAPTURE_AT or not self._make_room():
            return None
        if self.automatic:
            choice = self._choice(stack, x_BD, ring, options, encoder)
            loop, kernel = loop_and_kernel(choice)
            if loop != "graph":
                return None
            options = options._replace(kernel=kernel)
        try:
            graph = CapturedStep(stack.step, ring, x_BD, options, encoder)
        except Exception as error:  # out of memory; a kernel that does not compile
            fallbacks.disable_capturing(error)
            return None
        self.graphs[key] = graph
        return graph

    def _make_room(self) -> bool:
        """Drop graphs that were not used for a window. Returns whether there is room for another one."""
        oldest = self._own.steps - CAPTURE_WINDOW_STEPS
        for key in [key for key in self.graphs if self._own.last_used.get(key, 0) < oldest]:
            self.graphs.pop(key).detach()
        return len(self.graphs) < MAX_GRAPHS

    def _choice(self, stack, x_BD, ring, options, encoder) -> str:
        """The fastest way to run a step that agrees with the fast loop: ``fast``, ``graph`` or ``graph+triton``."""
        key = (options._replace(kernel="torch"), bool(encoder), ring.buffer.dtype, x_BD.dtype)

        def fastest() -> str:
            names = ["fast", "graph", *(["graph+triton"] if fallbacks.have_kernels(x_BD.device) else [])]
            arguments = (stack, x_BD, ring, options, encoder)
            candidates = {name: partial(repeatable_step, name, *arguments) for name in names}
            title = "step loop auto, decoding, per step"
            return "".join(ranking(title, candidates, x_BD.device, x_BD.dtype)[:1])

        return self.rankings.find(key, fastest) or "fast"


def repeatable_step(name: str, stack, x_BD, ring, options, encoder) -> Callable[[], list]:
    """What computes the same step again and again, for a trial; the ring stays as it is."""
    loop, kernel = loop_and_kernel(name)
    options = options._replace(kernel=kernel)
    if loop == "fast":
        own = ring.empty_copy(len(x_BD))

        def run() -> list:
            own.copy_rows(ring)
            result = stack.step(x_BD, own, options, encoder)
            return [[result.out_BD, result.memory_KBD, own.buffer]]

        return run
    with fallbacks.trying_to_capture(x_BD.device):
        graph = CapturedStep(stack.step, ring, x_BD, options, encoder)
    return lambda: [graph.try_on(ring, x_BD, encoder)]


def shapes(x_BD: Tensor, ring: MemoryRing, options: FeedbackOptions, encoder: Sequence[EncoderContext]) -> Tuple:
    """Everything that a captured step depends on, except the values of tensors."""
    source = None
    if encoder:
        keys = encoder[0].keys_CBHE
        source = (round_up(keys.shape[0], SOURCE_MULTIPLE), keys.dtype, hypotheses(len(x_BD), encoder))
    rows = padded_rows(len(x_BD), encoder)
    return (rows, x_BD.dtype, x_BD.device, options, source, *modes_of_products(), *ring.shape())


def hypotheses(rows: int, encoder: Sequence[EncoderContext]) -> int:
    """How many consecutive rows each sentence of the encoder serves; 1 without an encoder."""
    return rows // max(1, encoder[0].keys_CBHE.shape[1]) if encoder else 1


def padded_rows(rows: int, encoder: Sequence[EncoderContext]) -> int:
    """The number of rows of a captured step: sentences are rounded up to a power of two."""
    per_sentence = hypotheses(rows, encoder)
    return per_sentence * 2 ** (rows // per_sentence - 1).bit_length()


def round_up(number: int, multiple: int) -> int:
    """The next multiple."""
    return -(-number // multiple) * multiple


def padded_context(context: EncoderContext, sentences: int) -> EncoderContext:
    """Memory for keys and values of an encoder's output, in the layout [B, H, C, E], and for their padding."""
    C, _, H, E = context.keys_CBHE.shape
    C = round_up(C, SOURCE_MULTIPLE)
    keys, values = (context.keys_CBHE.new_zeros(sentences, H, C, E).permute(2, 0, 1, 3) for _ in range(2))
    return EncoderContext(keys, values, torch.zeros(sentences, C, dtype=torch.bool, device=keys.device))
