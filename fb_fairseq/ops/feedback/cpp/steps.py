"""Decoding steps in C++, with weights that stay packed as long as the parameters do not change.

Its reference: ``feedback_step`` in the folder above.
"""

import ctypes
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.feedback.cpp.arguments import block_arguments, record_arguments
from fb_fairseq.ops.feedback.cpp.library import Library, load, pointer
from fb_fairseq.ops.feedback.cpp.packing import Packing
from fb_fairseq.ops.feedback.cpp.structures import LATER, LayerArgs, RingArgs, SetArgs
from fb_fairseq.ops.feedback.decoding import StepInputs
from fb_fairseq.ops.feedback.record import Allocator, Record
from fb_fairseq.ops.feedback.ring import KEYS_VALUES, MemoryRing
from fb_fairseq.ops.feedback.types import (
    EncoderContext,
    FeedbackDropouts,
    FeedbackOptions,
    FeedbackWeights,
    StepOutput,
    sizes_of,
)
from fb_fairseq.ops.feedback.weights import compute_weights
from fb_fairseq.ops.layers import has_modules
from fb_fairseq.ops.threads import each_range, loop_threads

# A step on several threads is worth waking them up if it has this many multiplications and additions.
WORTH_THREADS = 1 << 25


class CppStep:
    """A model's weights, packed once, and the steps that use them.

    They are packed again when a parameter is another tensor than before, or was changed in place. torch does not count
    changes through ``parameter.data``, so the numbers are compared when a sequence starts, with a copy of them.

    Args:
        parameters: those that the weights depend on.
        options: ``span`` is that of the ring.

    Attributes:
        sets: number of sets of keys and values, I.
        head_dim: E.
        span: that of the ring.
        _encoder: the encoder's keys and values, to which ``_layers`` point.
        _shape: rows, slots and source positions of the last step; None: none since ``_encoder`` is another one.
        _arguments, _ring: the arguments for steps of this shape.
        _allocator, _buffers: the memory that these point to.
    """

    def __init__(self, weights: FeedbackWeights, parameters: list[Tensor], options: FeedbackOptions, library: Library):
        self.library, self._lock = library, threading.Lock()
        self._parameters, self._versions = parameters, versions(parameters)
        self._copies = [parameter.detach().clone() for parameter in parameters]
        self._weights = w = compute_weights(weights, options.span, torch.float32, torch.float32)
        self._packing = packing = Packing(library, torch.empty)
        self.sets, self.span, L = len(w.kv_sets), options.span, len(w.layers)
        self.head_dim = len(w.layers[0].query.weight) // options.heads
        self._layers = (LayerArgs * L)(*(packing.layer(w, l, options.span) for l in range(L)))
        self._sets = (SetArgs * self.sets)(*(packing.key_values(w, i, (LATER, LATER)) for i in range(self.sets)))
        self._size = sum(parameter.numel() for parameter in parameters)
        self._look_at(())

    def is_current(self, stack: Any, ring: MemoryRing) -> bool:
        """Whether these are a model's weights, for steps on a ring."""
        if self.span != ring.span:
            return False
        if ring.packed is self:
            return versions(self._parameters) == self._versions
        parameters = stack.step_parameters()
        if versions(parameters) != self._versions or not stack.has_plain_weights():
            return False
        return all(map(torch.equal, parameters, self._copies))

    def run(self, inputs: StepInputs) -> StepOutput:
        """Run a step in fp32, and write its keys and values to the ring's next slot.

        Raises:
            ValueError: the ring has another number of streams, or the encoder's sentences do not divide it.
        """
        x_BD, ring, options, encoder = inputs
        if ring.buffer is None:
            ring.buffer = torch.zeros(2 * self.sets, len(x_BD), options.heads, ring.slots, self.head_dim)
        if ring.graph is not None:
            ring.release()
        ring.packed = self
        B, streams = len(x_BD), ring.buffer.shape[1] if ring.origin_BC is None else len(ring.origin_BC)
        sentences = encoder[0].keys_CBHE.shape[1] if encoder else 1
        if B != streams or streams % sentences:
            raise ValueError(f"a step of {B} rows; the memory has {streams} streams, of {sentences} sentences")
        with self._lock:  # the buffers are shared by all rings
            return self._run(inputs)

    def _run(self, inputs: StepInputs) -> StepOutput:
        x_BD, ring, options, encoder = inputs
        B, slots, rows_JBHCE = len(x_BD), ring.slots, ring.buffer
        if encoder is not self._encoder:
            self._look_at(encoder)
        sources = len(encoder[0].keys_CBHE) if encoder else 0
        if self._shape != (B, slots, sources):
            self._prepare(B, slots, sources, options)
        arguments, x_BD, out_BD = self._arguments, x_BD.contiguous(), torch.empty(x_BD.shape)
        memory_KBD = torch.empty(len(self._weights.mix_KA), *x_BD.shape)
        arguments.x, arguments.out, arguments.memory = x_BD.data_ptr(), out_BD.data_ptr(), memory_KBD.data_ptr()
        aligned_BC = None
        if sources and options.alignment_layer is not None:
            aligned_BC = torch.empty(B, sources)
            arguments.alignment_layer = options.alignment_layer
            arguments.alignment_heads = options.alignment_heads or options.heads
        arguments.aligned = pointer(aligned_BC)
        whole, bytes_of_J = pointer(rows_JBHCE), rows_JBHCE[0].nbytes
        for i, key_values in enumerate(self._sets):
            key_values.slots[0] = whole + 2 * i * bytes_of_J
            key_values.slots[1] = whole + (2 * i + 1) * bytes_of_J
        age_B = None if ring.age_B is None else ring.age_B.long()
        place = self._ring
        place.span, place.position = ring.span, ring.position
        place.origin, place.age = pointer(ring.origin_BC), pointer(age_B)
        # A slot that is written for the second time may be looked at by other streams in this step.
        shared = ring.origin_BC is not None and ring.position >= ring.span
        with loop_threads(x_BD.device, 0) as threads:
            threads = 1 if shared or 2 * B * self._size < WORTH_THREADS else threads
            each_range(partial(self.library.step, ctypes.byref(arguments), ctypes.byref(place)), B, threads)
        return StepOutput(out_BD, memory_KBD, aligned_BC)

    def _look_at(self, encoder: Sequence[EncoderContext]) -> None:
        """Point to another encoder's keys and values."""
        self._encoder, self._encoder_packing = encoder, Packing(self.library, torch.empty)
        for layer, context in zip(self._layers, encoder):
            for side, slots_CBHE in enumerate(context[:2]):
                layer.encoder[side] = self._encoder_packing.hold(slots_CBHE.permute(1, 2, 0, 3))
        self._shape = None

    def _prepare(self, B: int, slots: int, sources: int, options: FeedbackOptions) -> None:
        """Make the arguments and the buffers for steps of a shape."""
        w = self._weights
        packing = self._buffers = Packing(self.library, torch.empty)
        sizes = sizes_of(w, options.heads, T=1, B=B, C=0, S=slots, sources=sources)
        sentences, padding_BC = B, None
        if sources:
            sentences, padding_BC = self._encoder[0].keys_CBHE.shape[1], self._encoder[0].padding_BC
        buffers, dtype = Buffers(torch.device("cpu")), torch.float32
        self._allocator = Allocator(sizes, buffers, dtype, dtype, post_norm=not options.normalize_before)
        self._arguments = block_arguments(
            packing,
            sizes,
            w,
            options,
            layers=self._layers,
            sets=self._sets,
            record=record_arguments(Record(self._allocator, 1, weights=True)),
            sentences=sentences,
            padding_BC=padding_BC,
            dropouts=FeedbackDropouts(),
            age_TB=None,
            x=LATER,
            memory=LATER,
        )
        self._ring = RingArgs(slots=slots, span=self.span, position=0, origin=None, age=None)
        self._shape = B, slots, sources


def packed_step(kept: dict[str, Any], stack: Any, inputs: StepInputs) -> CppStep | None:
    """A model's packed weights: those in ``kept`` as long as the parameters do not change, or new ones.

    None where steps in C++ do not cover this one, because of the types of parameters, or of adapters. (``covers`` has
    passed.)
    """
    step = kept.get("step")
    if step is None or not step.is_current(stack, inputs.ring):
        parameters = stack.step_parameters()
        if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in parameters):
            return None
        weights = stack.step_weights(inputs.ring, inputs.x_BD.device)
        if has_modules(weights):
            return None
        step = kept["step"] = CppStep(weights, parameters, inputs.options, load().library)
    return step


def covers(stack: Any, inputs: StepInputs) -> bool:
    """Whether steps in C++ cover a step. They do in fp32 on a CPU without gradients, on rings of keys and values."""
    x_BD, ring = inputs.x_BD, inputs.ring
    if torch.is_grad_enabled() or x_BD.device.type != "cpu" or x_BD.dtype != torch.float32 or not len(x_BD):
        return False
    if torch.is_autocast_enabled("cpu") or not stack.uses_feedback_step:
        return False
    fits = ring.buffer is None or (ring.buffer.dtype == torch.float32 and ring.buffer.device.type == "cpu")
    return fits and ring.storage == KEYS_VALUES


def versions(parameters: Sequence[Tensor]) -> list[tuple[int, int]]:
    """Each parameter's address, and the number of its changes in place."""
    try:
        return [(p.data_ptr(), p._version) for p in parameters]
    except RuntimeError:  # tensors of inference mode count no changes
        return [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in parameters]
