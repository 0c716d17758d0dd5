"""The Feedback Transformer's step loop, written to be checked against the paper by eye.

Fan et al. (arXiv 2002.09402) v3 §3.3, Eq. 1. Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fb_fairseq.ops.attention import cross_attention, step_attention
from fb_fairseq.ops.fallbacks import attention_kernels
from fb_fairseq.ops.feedback.types import (
    Context,
    EncoderContext,
    FeedbackDropouts,
    FeedbackOptions,
    FeedbackWeights,
    StepOutput,
    Window,
)
from fb_fairseq.ops.layers import (
    Dropout,
    at_least_fp32,
    attention_residual,
    feed_forward,
    project_memory,
    project_query,
)


def feedback_block(
    x_TBD: Tensor,
    memory_KCBD: Tensor,
    weights: FeedbackWeights,
    options: FeedbackOptions,
    dropouts: FeedbackDropouts = FeedbackDropouts(),
    active: Optional[Sequence[bool]] = None,
    encoder: Sequence[EncoderContext] = (),
    reach_TB: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    """Run a block of T steps, one after the other.

    Args:
        x_TBD: embeddings, x^0.
        memory_KCBD: memories of the C <= S steps before the block, oldest first.
        active: which layers run (LayerDrop); a layer that does not hands its input on.
        encoder: what each layer's attention to the encoder sees; empty in language models.
        reach_TB: how many steps back each stream reaches at each step, where its memory was reset (reinforcement
            learning: at the start of an episode 0, one step later 1, …); None: as far as its memory goes.

    Returns:
        The top layer's outputs x^L [T, B, D], the memories of the block [K, T, B, D], and the attention [B, T, C] of
        ``alignment_layer`` to the encoder, or None.
    """
    first_queries = project_query(x_TBD, weights.layers[0], options.heads, options.normalize_before)
    contexts = project_context(memory_KCBD, weights, options)
    steps: List[StepOutput] = []
    for t in range(x_TBD.shape[0]):
        far_BC = None
        if reach_TB is not None:
            C = len(contexts[0].keys_CBHE)
            far_BC = torch.arange(C, 0, -1, device=x_TBD.device) > reach_TB[t, :, None]
        windows = layer_windows(contexts, weights)
        arguments = (x_TBD[t], first_queries[t], windows, weights, options, dropouts, t, active, encoder, far_BC)
        if options.recompute and torch.is_grad_enabled():
            step = checkpoint(
                feedback_step,
                *arguments,
                use_reentrant=False,
                preserve_rng_state=False,  # masks are drawn already
            )
        else:
            step = feedback_step(*arguments)
        new = project_context(step.memory_KBD[:, None], weights, options)
        contexts = [
            Context(*(torch.cat(slots)[-options.span :] for slots in zip(old, added)))
            for old, added in zip(contexts, new)
        ]
        steps.append(step)
    aligned = [step.aligned_BC for step in steps]
    return (
        torch.stack([step.out_BD for step in steps]),
        torch.stack([step.memory_KBD for step in steps], 1),
        None if aligned[0] is None else torch.stack(aligned, 1),
    )


def feedback_step(
    x_BD: Tensor,
    first_query_BHE: Tensor,
    windows: Sequence[Window],
    weights: FeedbackWeights,
    options: FeedbackOptions,
    dropouts: FeedbackDropouts = FeedbackDropouts(),
    step: int = 0,
    active: Optional[Sequence[bool]] = None,
    encoder: Sequence[EncoderContext] = (),
    far_BC: Optional[Tensor] = None,
) -> StepOutput:
    """One step: its embedding through all layers, and what it leaves in memory.

    Args:
        first_query_BHE: layer 1's queries, which depend on the embedding alone.
        windows: what each layer attends to.
        far_BC: see ``step_attention``; of the longest window.
    """
    before = options.normalize_before
    aligned_BC = None
    representations = [x_BD]
    for l, layer in enumerate(weights.layers):
        if active is None or active[l]:
            masks = dropouts.at(l, step)
            query_BHE = first_query_BHE if l == 0 else project_query(x_BD, layer, options.heads, before)
            attended = attend_window(query_BHE, windows[l], l, weights, options, masks.attention_LTBHS, far_BC)
            x_BD = attention_residual(x_BD, attended, layer, before, masks.attention_residual_LTBD)
            if layer.cross is not None:
                keys_CBHE, values_CBHE, padding_BC = encoder[l]
                query_BHE = project_query(x_BD, layer.cross, options.heads, before)
                attended, weights_BHC = cross_attention(
                    query_BHE,
                    keys_CBHE.to(query_BHE.dtype),
                    values_CBHE.to(query_BHE.dtype),
                    padding_BC,
                    masks.cross_LTBHC,
                )
                x_BD = attention_residual(x_BD, attended, layer.cross, before, masks.cross_residual_LTBD)
                if l == options.alignment_layer:
                    aligned_BC = weights_BHC[:, : options.alignment_heads].mean(1)
            x_BD = feed_forward(x_BD, layer, options.activation, before, masks.hidden_LTBF, masks.ffn_residual_LTBD)
        representations.append(x_BD)
    with torch.autocast(x_BD.device.type, enabled=False):
        memory_KBD = torch.einsum("kn,nbd->kbd", weights.mix_KN.to(x_BD.dtype), torch.stack(representations))
    return StepOutput(x_BD, memory_KBD, aligned_BC)


def attend_window(
    query_BHE: Tensor,
    window: Window,
    l: int,
    weights: FeedbackWeights,
    options: FeedbackOptions,
    mask_BHS: Optional[Dropout],
    far_BC: Optional[Tensor],
) -> Tensor:
    """A layer's attention to its window; see ``feedback_step``."""
    window = window._replace(
        keys_CBHE=window.keys_CBHE.to(query_BHE.dtype), values_CBHE=window.values_CBHE.to(query_BHE.dtype)
    )
    if window.seen_1 is not None and far_BC is None and not torch.is_grad_enabled():
        kernels = attention_kernels(options.kernel, query_BHE.device)
        if kernels is not None:
            return kernels.attend_window(query_BHE, window, weights.positions, weights.layers[l].span_mask_HS)
    keys_CBHE, values_CBHE, positions, span_mask_HC, _ = window
    if far_BC is not None:
        far_BC = far_BC[:, far_BC.shape[1] - len(keys_CBHE) :]
    return step_attention(query_BHE, keys_CBHE, values_CBHE, positions, mask_BHS, span_mask_HC, far_BC=far_BC)


def layer_windows(contexts: Sequence[Context], weights: FeedbackWeights) -> List[Window]:
    """Each layer's window on the slots, which are in the order of their steps."""
    shared = weights.positions.of_window(len(contexts[0].keys_CBHE))
    windows = []
    for l, layer in enumerate(weights.layers):
        context = contexts[l if len(contexts) > 1 else 0]
        if layer.span_mask_HS is None:
            windows.append(Window(*context, shared, None))
        else:
            C = min(len(context.keys_CBHE), layer.span_mask_HS.shape[1])
            newest = Context(*(slots[len(slots) - C :] for slots in context))
            windows.append(Window(*newest, weights.positions.of_window(C), layer.span_mask_HS[:, :C].flip(1)))
    return windows


def project_context(memory_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> List[Context]:
    """Keys and values of memories: one set for all layers, or one a layer where memories or projections are.

    They are fp32 at least: each slot's gradient is a sum over steps and layers.
    """
    K, P = len(memory_KCBD), len(weights.projections)
    return [
        Context(
            *map(
                at_least_fp32,
                project_memory(memory_KCBD[i if K > 1 else 0], weights.projections[i if P > 1 else 0], options.heads),
            )
        )
        for i in range(max(K, P))
    ]
