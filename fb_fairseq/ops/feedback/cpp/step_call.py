"""A call of C++ for a decoding step: its arguments, and the memory that they point to."""

import ctypes
from functools import partial

import torch

from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.feedback.cpp.arguments import block_arguments, record_arguments
from fb_fairseq.ops.feedback.cpp.library import pointer
from fb_fairseq.ops.feedback.cpp.packed_model import PackedModel
from fb_fairseq.ops.feedback.cpp.packing import Packing
from fb_fairseq.ops.feedback.cpp.structures import LATER, LayerArgs, RingArgs, SetArgs
from fb_fairseq.ops.feedback.record import Allocator, Record
from fb_fairseq.ops.feedback.step_inputs import StepInputs
from fb_fairseq.ops.feedback.types import StepOutput, sizes_of
from fb_fairseq.ops.thread_pool import each_range
from fb_fairseq.ops.threads import loop_threads

# A step on several threads is worth waking them up if it has this many multiplications and additions.
WORTH_THREADS = 1 << 25


class StepCall:
    """A call of C++: its arguments, and the memory that they point to. It serves steps of the same shapes.

    Args:
        model: the packed weights.
        inputs: a step, for its shapes and its encoder.
    """

    def __init__(self, model: PackedModel, inputs: StepInputs):
        _, ring, options, encoder = inputs
        B = len(inputs.x_BD)
        slots = ring.slots
        self._library = model.library
        self._encoder = encoder
        self._shape = (B, slots, options)
        self._operations = 2 * B * model.size
        self._packing = packing = Packing(model.library, torch.empty)
        self._layers = (LayerArgs * len(model.layers))(*model.layers)
        self._sets = (SetArgs * len(model.sets))(*model.sets)
        sources = 0
        sentences = B
        padding_BC = None
        if encoder:
            sources, sentences = encoder[0].keys_CBHE.shape[:2]
            padding_BC = encoder[0].padding_BC
        for layer, context in zip(self._layers, encoder):
            for side, slots_CBHE in enumerate(context[:2]):
                layer.encoder[side] = packing.hold(slots_CBHE.permute(1, 2, 0, 3))
        self._sizes = sizes_of(model.weights, options.heads, T=1, B=B, C=0, S=slots, sources=sources)
        self._buffers = Buffers(inputs.x_BD.device)
        post_norm = not options.normalize_before
        allocator = Allocator(self._sizes, self._buffers, torch.float32, torch.float32, post_norm=post_norm)
        self._arguments = block_arguments(
            packing,
            self._sizes,
            model.weights,
            options,
            layers=self._layers,
            sets=self._sets,
            record=record_arguments(Record(allocator, 1, weights=True)),
            sentences=sentences,
            padding_BC=padding_BC,
            x=LATER,
            memory=LATER,
        )
        self._ring = RingArgs(slots=slots, span=model.span, position=0)

    def serves(self, inputs: StepInputs) -> bool:
        """Whether a step has these shapes and attends to this encoder."""
        shape = len(inputs.x_BD), inputs.ring.slots, inputs.options
        return inputs.encoder is self._encoder and shape == self._shape

    def run(self, inputs: StepInputs) -> StepOutput:
        """Run a step that it serves; see ``CppStep.run``."""
        ring, s, arguments, place = inputs.ring, self._sizes, self._arguments, self._ring
        x_BD = inputs.x_BD.contiguous()
        out_BD = torch.empty(s.B, s.D)
        memory_KBD = torch.empty(s.K, s.B, s.D)
        aligned_BC = None
        if s.sources and inputs.options.alignment_layer is not None:
            aligned_BC = torch.empty(s.B, s.sources)
        arguments.x = pointer(x_BD)
        arguments.memory = pointer(memory_KBD)
        arguments.out = pointer(out_BD)
        arguments.aligned = pointer(aligned_BC)
        whole = pointer(ring.buffer)
        bytes_of_J = ring.buffer[0].nbytes
        for i, key_values in enumerate(self._sets):
            key_values.slots[0] = whole + 2 * i * bytes_of_J
            key_values.slots[1] = whole + (2 * i + 1) * bytes_of_J
        age_B = None if ring.age_B is None else ring.age_B.long()
        place.position = ring.position
        place.origin = pointer(ring.origin_BC)
        place.age = pointer(age_B)
        # A slot that is written for the second time may be looked at by other streams in this step.
        shared = ring.origin_BC is not None and ring.position >= ring.span
        with loop_threads(x_BD.device, 0) as threads:
            threads = 1 if shared or self._operations < WORTH_THREADS else threads
            each_range(partial(self._library.step, ctypes.byref(arguments), ctypes.byref(place)), s.B, threads)
        return StepOutput(out_BD, memory_KBD, aligned_BC)
