"""A decoding step of Triton kernels, on a ring whose position is on the device."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.cross_attention import cross_attention
from fb_fairseq.ops.feedback.block import encoder_slots
from fb_fairseq.ops.feedback.cuda_graphs.padding import hypotheses
from fb_fairseq.ops.feedback.record import Allocator, Record
from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.step_inputs import StepInputs
from fb_fairseq.ops.feedback.triton.forward import StepKernels
from fb_fairseq.ops.feedback.triton.slots import LaunchedSets, Slots, padded_log_masks, stacked
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
    """A ring's slots.

    Args:
        weights: the loop's, contiguous.
        ring: with keys and values of the type of ``memory_KTBD``.
        sizes: of the step.
        encoder: each layer's keys and values of the encoder's output; empty without one.
        memory_KTBD: where the memories of the step are stored, T = 1.
    """
    dtype = memory_KTBD.dtype
    wide = torch.promote_types(dtype, torch.float32)  # the type of sums
    mix_KA = weights.mix_KA.to(wide).contiguous()
    slots_IGCE = ring.buffer.view(2 * sizes.I, sizes.G, ring.slots, sizes.E)
    sets = []
    for i, kv in enumerate(weights.kv_sets):  # (together, the projections would be copied at each step)
        memory = slice(kv.memory, kv.memory + 1)
        sets.append(
            LaunchedSets(
                mix_KA=mix_KA[memory],
                memory_KTBD=memory_KTBD[memory],
                projections=stacked([weights.projections[kv.projection]]),
                keys_IGCE=slots_IGCE[2 * i : 2 * i + 1],
                values_IGCE=slots_IGCE[2 * i + 1 : 2 * i + 2],
            )
        )
    return Slots(
        sizes=sizes,
        keys_IGCE=slots_IGCE[::2],
        values_IGCE=slots_IGCE[1::2],
        sets=sets,
        positions=contiguous(weights.positions.of_window(ring.span)),
        log_masks=padded_log_masks(span_terms_of(weights.layers, ring.span), ring.span, wide),
        reaches=[ring.slots] * sizes.L,
        encoder=[encoder_slots(context, dtype) for context in encoder],  # as many sentences as the encoder has
        age_TB=None if ring.age_B is None else ring.age_B[None],
        seen_1=ring.seen_1,
        streams=hypotheses(sizes.B, encoder),
    )


def run_step(weights: FeedbackWeights, inputs: StepInputs) -> StepOutput:
    """Run a step, and write its keys and values to the ring.

    Args:
        weights: of the layers, in the type of the step's embedding.
        inputs: the step; its ring is a ``DeviceRing``.
    """
    weights = contiguous(weights)
    _, ring, options, encoder = inputs
    x_BD = inputs.x_BD.contiguous()
    sources = len(encoder[0].keys_CBHE) if encoder else 0
    sizes = sizes_of(weights, options.heads, T=1, B=len(x_BD), C=ring.slots, S=ring.span, sources=sources)
    allocator = Allocator(sizes, Buffers(x_BD.device), x_BD.dtype, x_BD.dtype, post_norm=not options.normalize_before)
    memory_KTBD = x_BD.new_empty(sizes.K, 1, *x_BD.shape)
    slots = slots_of_ring(weights, ring, sizes, encoder, memory_KTBD)
    record = Record(allocator, 1, weights=False)
    kernels = StepKernels(allocator, weights.layers, options, slots, most=max(ring.slots, sources))
    query_BX = record.q[0, 0]
    kernels.first_query(record, x_BD, query_BX)
    kernels.run(record, 0, 0, x_BD=x_BD, first_query_BX=query_BX)
    aligned_BC = None
    if encoder and options.alignment_layer is not None:
        l = options.alignment_layer
        aligned_BC = aligned_weights(record.cross_q[0, l], encoder[l], options)
    return StepOutput(record.x[-1, 0], memory_KTBD[:, 0], aligned_BC)


def aligned_weights(q_BX: Tensor, encoder: EncoderContext, options: FeedbackOptions) -> Tensor:
    """The attention [B, C] of a layer's queries to the encoder, averaged over ``options.alignment_heads``."""
    keys, values = (x.to(q_BX.dtype) for x in encoder[:2])
    _, weights_BHC = cross_attention(split_heads(q_BX, options.heads), keys, values, encoder.padding_BC)
    return weights_BHC[:, : options.alignment_heads].mean(1)
