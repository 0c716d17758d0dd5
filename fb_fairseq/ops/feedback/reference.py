"""The Feedback Transformer, one step after the other, to be read beside the paper (Fan et al., arXiv 2002.09402).

v3 §3.3: ``m_t = Σ_l softmax(w)_l x_t^l`` (Eq. 1); layer l at step t attends to ``m_{t-S} … m_{t-1}``, never to step t.
``feedback_step`` is one step of it: in a block, and in decoding.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fb_fairseq.ops.attention import attention_by_distance, step_attention
from fb_fairseq.ops.cross_attention import cross_attention
from fb_fairseq.ops.feedback.types import (
    BlockInputs,
    BlockResults,
    Context,
    EncoderContext,
    FeedbackDropouts,
    FeedbackOptions,
    FeedbackWeights,
    StepOutput,
    one_or_own,
)
from fb_fairseq.ops.layers import attention_residual, feed_forward, project_memory, project_query
from fb_fairseq.ops.products import at_least_fp32
from fb_fairseq.ops.threads import loop_threads


def feedback_block(inputs: BlockInputs) -> BlockResults:
    """Run a block of T steps."""
    steps = feedback_steps(inputs)
    return BlockResults(
        torch.stack([step.out_BD for step in steps]),
        torch.stack([step.memory_KBD for step in steps], 1),
    )


def stack_attention(aligned: Sequence[Tensor | None]) -> Tensor | None:
    """The attention to the encoder [B, T, C] of a block, from that of its steps [B, C]; None where none is computed."""
    return None if aligned[0] is None else torch.stack(tuple(aligned), 1)


def feedback_steps(inputs: BlockInputs) -> list[StepOutput]:
    """Run a block of T steps. Returns what each step computes, all of it differentiable."""
    memory_KCBD, weights, options, age_TB = inputs.memory_KCBD, inputs.weights, inputs.options, inputs.age_TB
    run = partial(block_step, inputs=inputs)
    if options.recompute and torch.is_grad_enabled():
        # No random state to preserve: the dropout masks are drawn already.
        run = partial(checkpoint, run, use_reentrant=False, preserve_rng_state=False)
    contexts = [[carried] for carried in project_context(memory_KCBD, weights, options)]
    steps: list[StepOutput] = []
    for t, x_BD in enumerate(inputs.x_TBD):
        masks = [inputs.dropouts.at(l, t) for l in range(len(weights.layers))]
        step = run(x_BD, contexts, masks, None if age_TB is None else age_TB[t])
        new = project_context(step.memory_KBD[:, None], weights, options)
        contexts = [[*older, newest] for older, newest in zip(contexts, new)]
        steps.append(step)
    return steps


def block_step(
    x_BD: Tensor,
    contexts: Sequence[Sequence[Context]],
    masks: Sequence[FeedbackDropouts],
    age_B: Tensor | None,
    inputs: BlockInputs,
) -> StepOutput:
    """Run a step of a block.

    Args:
        x_BD: its embedding.
        contexts: the keys and values that it attends to: one set for all layers, or one per layer. Each comes in
            pieces, the carried slots and those of each step since, which are put together here: so a step that is
            computed again in the backward pass keeps no slots of its own.
        masks: each layer's dropout masks at this step.
        age_B: the age of each stream's episode; see ``BlockInputs``.
        inputs: the block.
    """
    weights, options = inputs.weights, inputs.options
    windows = [last_slots(pieces, options.span) for pieces in contexts]

    def attend_memory(l: int, query_BHE: Tensor) -> Tensor:
        """Attention over the slots that the layer's longest adaptive span reaches."""
        context, span_mask_HC = windows[one_or_own(l, len(windows))], weights.layers[l].span_mask_HS
        C = len(context.keys_CBHE)
        if span_mask_HC is not None:
            C = min(C, span_mask_HC.shape[1])
            span_mask_HC = span_mask_HC[:, :C].flip(1)
        keys_CBHE, values_CBHE = (slots[len(slots) - C :].to(query_BHE.dtype) for slots in context)
        far_BC = None
        if age_B is not None:
            far_BC = torch.arange(C, 0, -1, device=age_B.device) > age_B[:, None]
        return step_attention(
            query_BHE,
            keys_CBHE,
            values_CBHE,
            weights.positions.of_window(C),
            mask_BHS=masks[l].attention_LTBHS,
            span_mask_HC=span_mask_HC,
            far_BC=far_BC,
        )

    return feedback_step(
        x_BD, attend_memory, weights, options, masks=masks, active=inputs.active, encoder=inputs.encoder
    )


def last_slots(pieces: Sequence[Context], span: int) -> Context:
    """The last ``span`` slots of the carried ones and those of the steps since."""
    carried, *steps = pieces
    steps = steps[-span:]
    first = max(0, len(carried.keys_CBHE) + len(steps) - span)
    return Context(*(torch.cat([slots[0][first:], *slots[1:]]) for slots in zip(carried, *steps)))


def feedback_step(
    x_BD: Tensor,
    attend_memory: Callable[[int, Tensor], Tensor],
    weights: FeedbackWeights,
    options: FeedbackOptions,
    *,
    masks: Sequence[FeedbackDropouts] | None = None,
    active: Sequence[bool] | None = None,
    encoder: Sequence[EncoderContext] = (),
) -> StepOutput:
    """Run one step: its embedding through all layers, and the memories that it leaves.

    Args:
        x_BD: the step's embedding, x^0.
        attend_memory: attention [B, H, E] of layer l's queries [B, H, E] over the memory: ``attend_memory(l, query)``.
        masks: each layer's dropout masks at this step; None: nothing is dropped.
        active, encoder: see ``BlockInputs``; None: all layers run.
    """
    before, aligned_BC = options.normalize_before, None
    representations = [x_BD]
    for l, layer in enumerate(weights.layers):
        if active is None or active[l]:
            mask = FeedbackDropouts() if masks is None else masks[l]
            query_BHE = project_query(x_BD, layer, options.heads, before)
            attended_BHE = attend_memory(l, query_BHE)
            x_BD = attention_residual(x_BD, attended_BHE, layer, before, mask.attention_residual_LTBD)
            if layer.cross is not None and encoder:
                query_BHE = project_query(x_BD, layer.cross, options.heads, before)
                keys, values = (slots.to(query_BHE.dtype) for slots in encoder[l][:2])
                attended_BHE, weights_BHC = cross_attention(
                    query_BHE, keys, values, encoder[l].padding_BC, mask.cross_LTBHC
                )
                x_BD = attention_residual(x_BD, attended_BHE, layer.cross, before, mask.cross_residual_LTBD)
                if l == options.alignment_layer:
                    aligned_BC = weights_BHC[:, : options.alignment_heads].mean(1)
            x_BD = feed_forward(
                x_BD, layer, options.activation, before, hidden=mask.hidden_LTBF, residual=mask.ffn_residual_LTBD
            )
        representations.append(x_BD)
    return StepOutput(x_BD, mix_memories(representations, weights), aligned_BC, representations)


def project_context(memory_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions) -> list[Context]:
    """Keys and values of memories: one set for all layers, or one per layer where memories or projections are per
    layer.

    They are at least fp32, because each slot's gradient is a sum over steps and layers.
    """
    contexts = []
    for memory, projection in weights.kv_sets:
        keys, values = project_memory(memory_KCBD[memory], weights.projections[projection], options.heads)
        contexts.append(Context(at_least_fp32(keys), at_least_fp32(values)))
    return contexts


def mix_memories(representations: Sequence[Tensor], weights: FeedbackWeights) -> Tensor:
    """The memories [K, B, D] that a step leaves, computed from its L + 1 representations
    [B, D] (v3 §3.3, Eq. 1).

    In the representations' type, not in that of autocast: the memory is what all later steps see.
    """
    x_ABD = torch.stack(list(representations))
    with torch.autocast(x_ABD.device.type, enabled=False):
        return torch.einsum("ka,abd->kbd", weights.mix_KA.to(x_ABD.dtype), x_ABD)


def feedback_attention(
    x_TBD: Tensor, memory_KCBD: Tensor, weights: FeedbackWeights, options: FeedbackOptions
) -> tuple[Tensor, Tensor]:
    """Attention of the layers in a block, for inspection: without dropout and without gradient.

    Args:
        x_TBD, memory_KCBD: see ``BlockInputs``.

    Returns:
        The weights of the attention over the memory by distance, [L, B, H, T, S]: column d - 1 is that of the step d
        steps back. They are zero where the memory does not reach that far. And the memories of the block [K, T, B, D].
    """
    with torch.no_grad(), loop_threads(x_TBD.device, 0):
        steps = feedback_steps(BlockInputs(x_TBD, memory_KCBD, weights, options))
        memory_KTBD = torch.stack([step.memory_KBD for step in steps], 1)
        # No step of the block attends to its last one.
        contexts = project_context(torch.cat([memory_KCBD, memory_KTBD[:, :-1]], 1), weights, options)
        by_layer = []
        for l, layer in enumerate(weights.layers):
            x_TBD = torch.stack([step.representations[l] for step in steps])
            query_TBHE = project_query(x_TBD, layer, options.heads, options.normalize_before)
            keys_CBHE = contexts[one_or_own(l, len(contexts))].keys_CBHE.to(query_TBHE.dtype)
            span = options.span if layer.span_mask_HS is None else layer.span_mask_HS.shape[1]
            positions = weights.positions.reaching(span)
            weights_BHTS = attention_by_distance(query_TBHE, keys_CBHE, span, positions, layer.span_mask_HS)
            by_layer.append(F.pad(weights_BHTS, (0, options.span - span)))
        return torch.stack(by_layer), memory_KTBD
