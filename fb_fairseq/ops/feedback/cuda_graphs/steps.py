"""A decoding step as a CUDA graph.

A captured step works on memory of its own: a ring of slots, keys and values of an encoder's output, and the step's
embedding. It serves every ring of the same shapes, one at a time: a ring's slots lie in the graph's memory as long as
its steps are replayed. So that few shapes occur, slots double (``fb_fairseq.ops.feedback.ring``), and rows and
source positions are rounded up (``padding.py``).
"""

import weakref
from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from fb_fairseq.ops.captures import Captured
from fb_fairseq.ops.cuda_graphs import CudaGraph, current_device, reusable_memory
from fb_fairseq.ops.feedback.cuda_graphs.device_ring import DeviceRing
from fb_fairseq.ops.feedback.cuda_graphs.padding import hypotheses, padded_context, padded_rows
from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.step_inputs import StepInputs
from fb_fairseq.ops.feedback.types import EncoderContext, StepOutput
from fb_fairseq.ops.tensor_trees import cloned, copy_all


def nothing() -> None:
    """In the place of a weak reference: there is nothing yet."""


class CapturedStep(Captured):
    """A captured step and its memory, in which at most one ring has its slots.

    Args:
        step: what is captured, such as ``TransformerStack.reference_step``.
        inputs: a step, for its shapes.

    Attributes:
        rows: number of rows B of the captured step.
    """

    @reusable_memory()
    def __init__(self, step: Callable[[StepInputs], StepOutput], inputs: StepInputs):
        x_BD, ring, options, encoder = inputs
        self.rows = padded_rows(len(x_BD), encoder)
        self._held: Callable[[], MemoryRing | None] = nothing  # a weak reference to the ring that has its slots here
        self._x_BD = x_BD.new_zeros(self.rows, x_BD.shape[1])
        self._encoder = [padded_context(context, self.rows // hypotheses(len(x_BD), encoder)) for context in encoder]
        self._keys: Callable[[], Tensor | None] = nothing  # a weak reference to the keys that are copied here
        self._ring = DeviceRing(ring, self.rows)
        self._copy(ring, encoder)
        self._ring.seen_1.fill_(ring.position)
        run = partial(step, StepInputs(self._x_BD, self._ring, options, self._encoder))
        run()  # libraries set themselves up in a first call, which must not be captured
        with current_device(x_BD.device):
            self.graph = CudaGraph(run)

    def hold(self, ring: MemoryRing) -> None:
        """Take a ring's slots into this memory; the ring that had its slots here gets memory of its own again."""
        self.release()
        self._ring.copy_slots(ring)
        ring.release()
        ring.buffer = self._ring.buffer[:, : ring.buffer.shape[1]]
        if ring.age_B is not None:
            ring.age_B = self._ring.age_B[: len(ring.age_B)]
        ring.graph = self
        self._held = weakref.ref(ring)

    def release(self) -> None:
        """Give the slots that lie here back to their ring."""
        ring = self._held()
        if ring is not None and ring.graph is self:
            ring.release()

    def run(self, inputs: StepInputs) -> StepOutput:
        """Replay the step for a ring whose slots lie here."""
        x_BD, encoder = inputs.x_BD, inputs.encoder
        if encoder and encoder[0].keys_CBHE is not self._keys():  # reordered, or another batch's
            self._copy_encoder(encoder)
        self._x_BD[: len(x_BD)].copy_(x_BD)
        result = self._replay(inputs.ring.position)
        aligned_BC = result.aligned_BC
        if aligned_BC is not None:
            aligned_BC = aligned_BC[: len(x_BD), : len(encoder[0].keys_CBHE)]
        return cloned(StepOutput(result.out_BD[: len(x_BD)], result.memory_KBD[:, : len(x_BD)], aligned_BC))

    def try_on(self, inputs: StepInputs) -> list[list[Tensor]]:
        """The step's results, and the slots after it, for a ring that stays as it is. No ring must be held here yet."""
        rows = len(inputs.x_BD)
        self._copy(inputs.ring, inputs.encoder)
        self._x_BD[:rows].copy_(inputs.x_BD)
        result = self._replay(inputs.ring.position)
        return [[result.out_BD[:rows], result.memory_KBD[:, :rows], self._ring.buffer[:, :rows]]]

    def _replay(self, position: int) -> StepOutput:
        """Replay the step after ``position`` others; its result is overwritten by the next replay."""
        self._ring.seen_1.fill_(position)
        self.graph.replay()
        return self.graph.result

    def _copy(self, ring: MemoryRing, encoder: Sequence[EncoderContext]) -> None:
        self._ring.copy_slots(ring)
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
            pairs.append((own.keys_CBHE[:sources, :sentences], given.keys_CBHE))
            pairs.append((own.values_CBHE[:sources, :sentences], given.values_CBHE))
        copy_all(pairs)
        if encoder:
            self._keys = weakref.ref(encoder[0].keys_CBHE)
