"""One decoding step, as it runs in production: on the windows of a memory ring, without dropout.

It computes what ``fb_fairseq.ops.feedback.reference.feedback_block`` computes for a block of one step. Shape suffixes:
see ``fb_fairseq/ops/__init__.py``.
"""

from typing import NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from fb_fairseq.ops.attention import Positions, cross_attention, step_attention
from fb_fairseq.ops.fallbacks import attention_kernels
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, FeedbackWeights, StepOutput, mix_memories
from fb_fairseq.ops.layers import attention_residual, feed_forward, project_query


class Window(NamedTuple):
    """What a layer attends to: C slots, in any order.

    Attributes:
        positions: relative position embeddings of the slots [C, E], by their distances from the query.
        span_mask_HC: adaptive spans and empty slots: how much of each slot a head sees; None: all of it.
        seen_1: on a ring whose slots are all passed, filled or not: the number of steps seen, on the device; see
            ``fb_fairseq.ops.triton_attention.Slots``. None: all slots are filled.
    """

    keys_CBHE: Tensor
    values_CBHE: Tensor
    positions: Positions
    span_mask_HC: Optional[Tensor]
    seen_1: Optional[Tensor] = None


def feedback_step(
    x_BD: Tensor,
    windows: Sequence[Window],
    weights: FeedbackWeights,
    options: FeedbackOptions,
    encoder: Sequence[EncoderContext] = (),
    far_BC: Optional[Tensor] = None,
) -> StepOutput:
    """Run one step: its embedding through all layers, and the memories that it leaves.

    Args:
        x_BD: the step's embedding.
        windows: what each layer attends to.
        encoder: each layer's keys and values of the encoder's output; empty in language models.
        far_BC: True for slots that a stream may not look at, because they are older than its episode.
    """
    before, aligned_BC = options.normalize_before, None
    representations = [x_BD]
    for l, layer in enumerate(weights.layers):
        query_BHE = project_query(x_BD, layer, options.heads, before)
        attended_BHE = attend_window(query_BHE, windows[l], l, weights, options, far_BC)
        x_BD = attention_residual(x_BD, attended_BHE, layer, before)
        if layer.cross is not None:
            query_BHE = project_query(x_BD, layer.cross, options.heads, before)
            keys_CBHE, values_CBHE = (slots.to(query_BHE.dtype) for slots in encoder[l][:2])
            attended_BHE, weights_BHC = cross_attention(query_BHE, keys_CBHE, values_CBHE, encoder[l].padding_BC)
            x_BD = attention_residual(x_BD, attended_BHE, layer.cross, before)
            if l == options.alignment_layer:
                aligned_BC = weights_BHC[:, : options.alignment_heads].mean(1)
        x_BD = feed_forward(x_BD, layer, options.activation, before)
        representations.append(x_BD)
    return StepOutput(x_BD, mix_memories(representations, weights), aligned_BC)


def attend_window(
    query_BHE: Tensor,
    window: Window,
    l: int,
    weights: FeedbackWeights,
    options: FeedbackOptions,
    far_BC: Optional[Tensor],
) -> Tensor:
    """Attention [B, H, E] of layer l over its window, by the Triton kernel where it is asked for and available."""
    keys_CBHE, values_CBHE = (slots.to(query_BHE.dtype) for slots in (window.keys_CBHE, window.values_CBHE))
    # The kernel has no gradient here, and does not know episodes of a ring.
    if window.seen_1 is not None and far_BC is None and not torch.is_grad_enabled():
        kernels = attention_kernels(options.kernel, query_BHE.device)
        if kernels is not None:
            return kernels.attend_ring(
                query_BHE, keys_CBHE, values_CBHE, window.seen_1, weights.positions, weights.layers[l].span_mask_HS
            )
    return step_attention(
        query_BHE, keys_CBHE, values_CBHE, window.positions, span_mask_HC=window.span_mask_HC, far_BC=far_BC
    )
