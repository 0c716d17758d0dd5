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
from fb_fairseq.ops.feedback.types import FeedbackOptions, FeedbackWeights, StepOutput, sizes_of
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
        weights: of the model.
        parameters: those that the weights depend on.
        options: ``span`` is that of the ring.
        library: the compiled functions.

    Attributes:
        weights: in fp32, as ``layers`` and ``sets`` are made of them.
        layers, sets: what C++ reads of each layer, and of each set of keys and values; without what changes from step
            to step.
        size: number of parameters.
        span: that of the ring.
    """

    def __init__(self, weights: FeedbackWeights, parameters: list[Tensor], options: FeedbackOptions, library: Library):
        self.library, self._lock = library, threading.Lock()
        self._parameters, self._versions = parameters, versions(parameters)
        self._copies = [parameter.detach().clone() for parameter in parameters]
        self.size, self.span = sum(parameter.numel() for parameter in parameters), options.span
        self.weights = w = compute_weights(weights, options.span, torch.float32, torch.float32)
        self._packing = Packing(library, torch.empty)
        self.layers = [self._packing.layer(w, l, options.span) for l in range(len(w.layers))]
        self.sets = [self._packing.key_values(w, i, (LATER, LATER)) for i in range(len(w.kv_sets))]
        self._call: StepCall | None = None

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
        B = len(x_BD)
        if ring.buffer is None:
            head_dim = len(self.weights.layers[0].query.weight) // options.heads
            ring.buffer = torch.zeros(2 * len(self.sets), B, options.heads, ring.slots, head_dim)
        if ring.graph is not None:
            ring.release()
        ring.packed = self
        streams = ring.buffer.shape[1] if ring.origin_BC is None else len(ring.origin_BC)
        sentences = encoder[0].keys_CBHE.shape[1] if encoder else 1
        if B != streams or streams % sentences:
            raise ValueError(f"a step of {B} rows; the memory has {streams} streams, of {sentences} sentences")
        with self._lock:  # the call's memory is shared by all rings
            if self._call is None or not self._call.serves(inputs):
                self._call = StepCall(self, inputs)
            return self._call.run(inputs)


class StepCall:
    """A call of C++: its arguments, and the memory that they point to. It serves steps of the same shapes.

    (The packed weights hold this object, which therefore does not hold them.)

    Args:
        step: the packed weights.
        inputs: a step, for its shapes and its encoder.
    """

    def __init__(self, step: CppStep, inputs: StepInputs):
        _, ring, options, encoder = inputs
        B = len(inputs.x_BD)
        slots = ring.slots
        self._library = step.library
        self._encoder = encoder
        self._shape = (B, slots, options)
        self._operations = 2 * B * step.size
        self._packing = packing = Packing(step.library, torch.empty)
        self._layers = (LayerArgs * len(step.layers))(*step.layers)
        self._sets = (SetArgs * len(step.sets))(*step.sets)
        sources = 0
        sentences = B
        padding_BC = None
        if encoder:
            sources, sentences = encoder[0].keys_CBHE.shape[:2]
            padding_BC = encoder[0].padding_BC
        for layer, context in zip(self._layers, encoder):
            for side, slots_CBHE in enumerate(context[:2]):
                layer.encoder[side] = packing.hold(slots_CBHE.permute(1, 2, 0, 3))
        self._sizes = sizes_of(step.weights, options.heads, T=1, B=B, C=0, S=slots, sources=sources)
        self._buffers = Buffers(inputs.x_BD.device)
        post_norm = not options.normalize_before
        allocator = Allocator(self._sizes, self._buffers, torch.float32, torch.float32, post_norm=post_norm)
        self._arguments = block_arguments(
            packing,
            self._sizes,
            step.weights,
            options,
            layers=self._layers,
            sets=self._sets,
            record=record_arguments(Record(allocator, 1, weights=True)),
            sentences=sentences,
            padding_BC=padding_BC,
            x=LATER,
            memory=LATER,
        )
        self._ring = RingArgs(slots=slots, span=step.span, position=0)

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
