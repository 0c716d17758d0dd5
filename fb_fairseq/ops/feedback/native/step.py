"""A decoding step natively. Its plain twin: ``feedback_step`` in the folder above.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import ctypes
import threading
from functools import partial
from typing import NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.fast.block import compute_weights
from fb_fairseq.ops.feedback.native.blocks import ACTIVATION_NUMBERS
from fb_fairseq.ops.feedback.native.library import BlockArgs, LayerArgs, Library, Mask, RingArgs, SetArgs, pointer
from fb_fairseq.ops.feedback.native.packing import Packing
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, FeedbackWeights, StepOutput
from fb_fairseq.ops.layers import LAYER_NORM_EPS
from fb_fairseq.ops.threads import each_range, loop_threads

# A step on several threads is worth waking them up if it has this many multiplications and additions.
WORTH_THREADS = 1 << 25


class RingSlots(NamedTuple):
    """The memory of decoding: keys and values of the last ``position`` steps, at most ``span``; step t is in slot t mod
    span.

    Attributes:
        rows_JBHCE: for each set its keys and its values; J = 2 I. A step writes a slot.
        origin_BC: the stream (int32) whose slot a stream looks at, since the streams were reordered; None: its own.
        age_B: steps of each stream's episode so far; None: all steps.
    """

    rows_JBHCE: Tensor
    origin_BC: Optional[Tensor]
    age_B: Optional[Tensor]
    position: int
    span: int


class NativeStep:
    """A model's weights, packed once, and the steps that use them.

    Args:
        options: ``span`` is that of the ring.

    Attributes:
        sets: number of sets of keys and values, I.
        head_dim: E.
        span: that of the ring.
    """

    def __init__(self, weights: FeedbackWeights, options: FeedbackOptions, library: Library):
        self.library, self._lock = library, threading.Lock()
        self._weights = w = compute_weights(weights, options.span, torch.float32, torch.float32)
        self._packing = packing = Packing(library, torch.empty)
        self._layers, self._sets = (LayerArgs * len(w.layers))(), (SetArgs * len(w.sources))()
        for l, a in enumerate(self._layers):
            packing.fill_layer(a, w, l)
            a.reach, a.active = options.span, 1
        for i, a in enumerate(self._sets):
            packing.fill_set(a, w, i)
        self.sets, self.span = len(w.sources), options.span
        self.head_dim = len(w.layers[0].query.weight) // options.heads
        self._mix = packing.hold(w.mix_KA)
        self._look_at(())

    def run(
        self, x_BD: Tensor, ring: RingSlots, options: FeedbackOptions, encoder: Sequence[EncoderContext] = ()
    ) -> StepOutput:
        """Run a step, and write its keys and values to the ring's next slot.

        Args:
            x_BD: the step's embedding, fp32.
            encoder: see ``fb_fairseq.ops.feedback.step.feedback_step``.

        Raises:
            ValueError: the ring has another number of streams, or the encoder's sentences do not divide it.
        """
        streams = ring.rows_JBHCE.shape[1] if ring.origin_BC is None else len(ring.origin_BC)
        sentences = encoder[0].keys_CBHE.shape[1] if encoder else 1
        if len(x_BD) != streams or streams % sentences:
            raise ValueError(f"a step of {len(x_BD)} rows; the memory has {streams} streams, of {sentences} sentences")
        with self._lock:  # the buffers are shared by all rings
            return self._run(x_BD, ring, options, encoder)

    def _run(
        self, x_BD: Tensor, ring: RingSlots, options: FeedbackOptions, encoder: Sequence[EncoderContext]
    ) -> StepOutput:
        B, slots = len(x_BD), ring.rows_JBHCE.shape[3]
        if encoder is not self._encoder:
            self._look_at(encoder)
        sources = len(encoder[0].keys_CBHE) if encoder else 0
        if self._shape != (B, slots, sources):
            self._prepare(B, slots, sources, options)
        a, x_BD, out_BD = self._arguments, x_BD.contiguous(), torch.empty(x_BD.shape)
        memory_KBD = torch.empty(len(self._weights.mix_KA), *x_BD.shape)
        a.x, a.out, a.memory = x_BD.data_ptr(), out_BD.data_ptr(), memory_KBD.data_ptr()
        aligned_BC = None
        if sources:
            a.rows_per_source = B // encoder[0].keys_CBHE.shape[1]
            if options.alignment_layer is not None:
                aligned_BC = torch.empty(B, sources)
                a.alignment_layer, a.alignment_heads = options.alignment_layer, options.alignment_heads or options.heads
        a.aligned = None if aligned_BC is None else aligned_BC.data_ptr()
        whole, half = pointer(ring.rows_JBHCE), ring.rows_JBHCE[0].numel() * ring.rows_JBHCE.element_size()
        for i, a_set in enumerate(self._sets):
            a_set.slots[0], a_set.slots[1] = whole + 2 * i * half, whole + (2 * i + 1) * half
        age_B = None if ring.age_B is None else ring.age_B.long()
        ring_args = RingArgs(slots, ring.span, ring.position, pointer(ring.origin_BC), pointer(age_B))
        # A slot that is written for the second time may be looked at by other streams in this step.
        shared = ring.origin_BC is not None and ring.position >= ring.span
        with loop_threads(x_BD.device, 0) as threads:
            threads = 1 if shared or 2 * B * self._size < WORTH_THREADS else threads
            each_range(partial(self.library.step, ctypes.byref(a), ctypes.byref(ring_args)), B, threads)
        return StepOutput(out_BD, memory_KBD, aligned_BC)

    def _look_at(self, encoder: Sequence[EncoderContext]) -> None:
        """Point to another encoder's keys and values."""
        self._encoder, self._encoder_packing = encoder, Packing(self.library, torch.empty)
        hold = self._encoder_packing.hold
        for a, context in zip(self._layers, encoder):
            for side, slots_CBHE in enumerate(context[:2]):
                a.encoder[side] = hold(slots_CBHE.permute(1, 2, 0, 3))
        self._padding = hold(encoder[0].padding_BC) if encoder else None
        self._shape = None

    def _prepare(self, B: int, slots: int, sources: int, options: FeedbackOptions) -> None:
        """Make the arguments and the buffers for steps of a shape."""
        w, self._shape = self._weights, (B, slots, sources)
        packing = self._buffers = Packing(self.library, torch.empty)
        layer, H, L = w.layers[0], options.heads, len(w.layers)
        (X, D), F = layer.query.weight.shape, len(layer.fc1.weight)
        self._arguments = a = BlockArgs(T=1, B=B, D=D, L=L, H=H, E=X // H, F=F, S=slots, C=0)
        a.K, a.I, a.record_steps, a.sources = len(w.mix_KA), len(w.sources), 1, sources
        a.pre_norm, a.activation = int(options.normalize_before), ACTIVATION_NUMBERS[options.activation]
        a.scale, a.eps, a.mix, a.padding = (X // H) ** -0.5, LAYER_NORM_EPS, self._mix, self._padding
        a.layers, a.sets = ctypes.addressof(self._layers), ctypes.addressof(self._sets)
        if w.key_positions_SE is not None:
            a.key_positions = packing.pack(w.key_positions_SE[-slots:], True)
        if w.value_positions_SE is not None:
            a.value_positions = packing.pack(w.value_positions_SE[-slots:], False)
        for name in ("attention", "hidden", "attention_residual", "ffn_residual", "cross", "cross_residual"):
            setattr(a, f"{name}_mask", Mask(None, 1.0))

        def buffer(size: int) -> int:
            return packing.empty(size).data_ptr()

        a.x_ATBD = buffer((L + 1) * B * D)
        for name in ("attended_x", "attention_sum", "ffn_sum", "crossed_x", "cross_sum"):
            setattr(a, name, buffer(L * B * D))
        for name in ("q", "a", "cross_q", "cross_a"):
            setattr(a, name, buffer(L * B * X))
        a.p, a.hidden = buffer(L * B * H * slots), buffer(L * B * F)
        a.cross_p = buffer(L * B * H * sources) if sources else None
        a.scratch = buffer(B * self.library.scratch_size(ctypes.byref(a)))
        matrices = [*w.key_values, *(x for l in w.layers for x in (l.query, l.out, l.fc1, l.fc2))]
        self._size = sum(affine.weight.numel() for affine in matrices)
