"""A decoding step of Triton kernels, on a ring whose position is on the device."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fb_fairseq.ops.attention import Positions, span_terms
from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.feedback.block import Record, Room, contiguous
from fb_fairseq.ops.feedback.cuda_graphs.steps import hypotheses
from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.triton import memory
from fb_fairseq.ops.feedback.triton.forward import StepKernels, aligned_weights, padding_bytes
from fb_fairseq.ops.feedback.triton.launches import AttendedSlots, Launcher
from fb_fairseq.ops.feedback.types import (
    EncoderContext,
    FeedbackDropouts,
    FeedbackOptions,
    FeedbackWeights,
    Sizes,
    StepOutput,
    one_or_own,
)


class RingSlots:
    """A ring's slots, as kernels read and write them; see ``BlockSlots``."""

    def __init__(
        self, weights: FeedbackWeights, x_BD: Tensor, ring: MemoryRing, sizes: Sizes, encoder: Sequence[EncoderContext]
    ):
        self.weights, self.ring, self.sizes = weights, ring, sizes
        self.wide = torch.promote_types(x_BD.dtype, torch.float32)
        self.positions = Positions(*(None if x is None else x[: ring.span].flip(0) for x in weights.positions))
        self.mix_KA = weights.mix_KA.to(self.wide).contiguous()
        self.spans = [layer.span_mask_HS for layer in weights.layers]
        self.hypotheses, self.padding = hypotheses(len(x_BD), encoder), padding_bytes(encoder)
        # As many sentences as the encoder has, not one for each stream.
        self.encoder_slots = [
            tuple(x.permute(1, 2, 0, 3).reshape(-1, x.shape[0], x.shape[3]) for x in context[:2]) for context in encoder
        ]
        self.memory_KBD = x_BD.new_empty(sizes.K, *x_BD.shape)

    def memory(self, l: int, t: int) -> AttendedSlots:
        """The ring's slots, of every layer's step (see ``BlockSlots``)."""
        s, i, ring, span_mask_HS = self.sizes, one_or_own(l, self.sizes.I), self.ring, self.spans[l]
        log_mask_HS: Tensor | None = None
        if span_mask_HS is not None:
            log_mask_HS = span_terms(span_mask_HS.flip(1).to(self.wide))[0].contiguous()
        keys, values = (ring.buffer[2 * i + side].view(s.G, ring.slots, s.E) for side in range(2))
        return AttendedSlots(
            keys, values, ring.slots, 0, self.positions, log_mask_HS, ring.age_B, seen_1=ring.seen_1, span=ring.span
        )

    def encoder(self, l: int, t: int) -> AttendedSlots:
        """The encoder's slots of layer l."""
        keys, values = self.encoder_slots[l]
        return AttendedSlots(keys, values, keys.shape[1], 0, padding=self.padding, streams=self.hypotheses)

    def remember(self, launcher: Launcher, x_ABD: Tensor, t: int) -> None:
        """See ``BlockSlots``: to the ring's next slot."""
        s, ring = self.sizes, self.ring
        for i, kv in enumerate(self.weights.kv_sets):
            norm, key, value = self.weights.projections[kv.projection]
            launcher.product(
                memory.remember,
                2 * s.X,
                s.D,
                x=x_ABD,
                mix=self.mix_KA[kv.memory],
                norm_weight=norm and norm.weight,
                norm_bias=norm and norm.bias,
                key_weight=key.weight,
                value_weight=value.weight,
                key_bias=key.bias,
                value_bias=value.bias,
                memory=self.memory_KBD[kv.memory],
                keys=ring.buffer[2 * i],
                values=ring.buffer[2 * i + 1],
                seen=ring.seen_1,
                x_layer=x_ABD.stride(0),
                memory_stride=0,
                weight_stride=0,
                bias_stride=0,
                slot=ring.span,
                slots=ring.slots,
                A=s.L + 1,
                K=1,
                PROJECTIONS=1,
                D=s.D,
                H=s.H,
                E=s.E,
            )


def run_step(
    weights: FeedbackWeights,
    x_BD: Tensor,
    ring: MemoryRing,
    options: FeedbackOptions,
    encoder: Sequence[EncoderContext],
) -> StepOutput:
    """Run a step, and write its keys and values to the ring."""
    weights = contiguous(weights)
    (B, D), layer = x_BD.shape, weights.layers[0]
    X, F = len(layer.query.weight), len(layer.fc1.weight)
    sizes = Sizes(
        T=1, B=B, D=D, L=len(weights.layers), H=options.heads, E=X // options.heads, F=F, K=len(weights.mix_KA),
        C=ring.slots, S=ring.span, I=len(weights.kv_sets),
    )  # fmt: skip
    sources = len(encoder[0].keys_CBHE) if encoder else 0
    room = Room(sizes, Buffers(x_BD.device), x_BD.dtype, x_BD.dtype, not options.normalize_before, sources)
    slots = RingSlots(weights, x_BD, ring, sizes, encoder)
    record, most = Record(room, 1, weights=False), max(ring.slots, sources)
    kernels = StepKernels(room, weights.layers, options, FeedbackDropouts(), slots, most)
    query_BX, x_BD = record.q[0, 0], x_BD.contiguous()
    kernels.first_query(record, x_BD, query_BX)
    kernels.run(record, 0, 0, x_BD, query_BX)
    aligned_BC: Tensor | None = None
    if encoder and options.alignment_layer is not None:
        l = options.alignment_layer
        aligned_BC = aligned_weights(record.cross_q[0, l], encoder[l], options)
    return StepOutput(record.x[-1, 0], slots.memory_KBD, aligned_BC)
