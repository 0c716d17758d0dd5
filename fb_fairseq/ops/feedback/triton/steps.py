"""A decoding step of Triton kernels, on a ring whose position is on the device."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fb_fairseq.ops.attention import cross_attention
from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.feedback.block import encoder_slots
from fb_fairseq.ops.feedback.cuda_graphs.steps import hypotheses
from fb_fairseq.ops.feedback.decoding import StepInputs
from fb_fairseq.ops.feedback.record import Allocator, Record
from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.triton.forward import StepKernels
from fb_fairseq.ops.feedback.triton.slots import LaunchedSets, Slots, log_masks, stacked
from fb_fairseq.ops.feedback.types import (
    EncoderContext,
    FeedbackOptions,
    FeedbackWeights,
    Sizes,
    StepOutput,
    sizes_of,
)
from fb_fairseq.ops.feedback.weights import contiguous, span_terms_of
from fb_fairseq.ops.layers import split_heads


def slots_of_ring(
    weights: FeedbackWeights,
    ring: MemoryRing,
    sizes: Sizes,
    encoder: Sequence[EncoderContext],
    memory_KTBD: Tensor,
) -> Slots:
    """A ring's slots. ``memory_KTBD``: where the memories of a single step are stored."""
    dtype = memory_KTBD.dtype
    wide = torch.promote_types(dtype, torch.float32)
    mix_KA = weights.mix_KA.to(wide).contiguous()
    slots_IGCE = ring.buffer.view(2 * sizes.I, sizes.G, ring.slots, sizes.E)
    sets = []
    for i, kv in enumerate(weights.kv_sets):  # (together, the projections would be copied at each step)
        memory, own = slice(kv.memory, kv.memory + 1), slots_IGCE[2 * i : 2 * i + 2]
        projection = stacked([weights.projections[kv.projection]])
        sets.append(
            LaunchedSets(
                mix_KA=mix_KA[memory],
                memory_KTBD=memory_KTBD[memory],
                projections=projection,
                keys_IGCE=own[:1],
                values_IGCE=own[1:],
            )
        )
    return Slots(
        sizes=sizes,
        keys_IGCE=slots_IGCE[::2],
        values_IGCE=slots_IGCE[1::2],
        sets=sets,
        positions=contiguous(weights.positions.of_window(ring.span)),
        log_masks=log_masks(span_terms_of(weights.layers, ring.span), ring.span, wide),
        reaches=[ring.slots] * sizes.L,
        encoder=[encoder_slots(context, dtype) for context in encoder],  # as many sentences as the encoder has
        age_TB=None if ring.age_B is None else ring.age_B[None],
        seen_1=ring.seen_1,
        streams=hypotheses(sizes.B, encoder),
    )


def run_step(weights: FeedbackWeights, inputs: StepInputs) -> StepOutput:
    """Run a step, and write its keys and values to the ring."""
    weights = contiguous(weights)
    x_BD, ring, options, encoder = inputs
    sources = len(encoder[0].keys_CBHE) if encoder else 0
    sizes = sizes_of(weights, options.heads, T=1, B=len(x_BD), C=ring.slots, S=ring.span, sources=sources)
    allocator = Allocator(sizes, Buffers(x_BD.device), x_BD.dtype, x_BD.dtype, post_norm=not options.normalize_before)
    memory_KTBD = x_BD.new_empty(sizes.K, 1, *x_BD.shape)
    slots = slots_of_ring(weights, ring, sizes, encoder, memory_KTBD)
    record, most = Record(allocator, 1, weights=False), max(ring.slots, sources)
    kernels = StepKernels(allocator, weights.layers, options, slots, most)
    query_BX, x_BD = record.q[0, 0], x_BD.contiguous()
    kernels.first_query(record, x_BD, query_BX)
    kernels.run(record, 0, 0, x_BD=x_BD, first_query_BX=query_BX)
    aligned_BC: Tensor | None = None
    if encoder and options.alignment_layer is not None:
        l = options.alignment_layer
        aligned_BC = aligned_weights(record.cross_q[0, l], encoder[l], options)
    return StepOutput(record.x[-1, 0], memory_KTBD[:, 0], aligned_BC)


def aligned_weights(q_BX: Tensor, encoder: EncoderContext, options: FeedbackOptions) -> Tensor:
    """The attention [B, C] of a layer's queries to the encoder, averaged over heads."""
    keys, values = (x.to(q_BX.dtype) for x in encoder[:2])
    _, weights_BHC = cross_attention(split_heads(q_BX, options.heads), keys, values, encoder.padding_BC)
    return weights_BHC[:, : options.alignment_heads].mean(1)
