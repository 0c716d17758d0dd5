"""All steps of a block at once, over and over: ``--step-loop parallel``.

The memories of a block solve m = Φ(m), where Φ runs all layers over all steps in parallel, and each step attends to the
memories m of the steps before it. Repeating Φ is Jacobi iteration (Song et al., arXiv 2002.03629; for RNNs Lim et al.,
arXiv 2309.12252). A memory depends on earlier steps only: after k passes the first k steps are exact, whatever the
model. How fast the others converge depends on how sequential the model is (docs/parallel-passes.md).

Gradients of a solution: with J = ∂Φ/∂m and g the loss's gradient with respect to m in one more pass, the gradient of
the memories solves λ = g + Jᵀλ, which is iterated as well, by vector-Jacobian products of that pass; the gradients of
weights follow from λ in a single backward pass. Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from fb_fairseq.ops.attention import block_attention, cross_attention
from fb_fairseq.ops.cuda_graphs import log_once
from fb_fairseq.ops.feedback.types import (
    BlockInputs,
    BlockResults,
    Context,
    EncoderContext,
    FeedbackDropouts,
    mix_memories,
    one_or_own,
    project_context,
)
from fb_fairseq.ops.layers import Dropout, Layer, attention_residual, feed_forward, product_type, project_query

UNROLLED = 3  # passes with a gradient, where their number is fixed
LIMIT = 64  # passes until a block that has not converged is left to the ordinary loop
PATIENCE, PROGRESS = 8, 0.5  # it is left earlier if so many passes did not bring the change down by this factor


class Solution(NamedTuple):
    """Results of a block.

    Attributes:
        passes: how many there were.
        change: how much the last one changed the memories, relative to their norm, a scalar; None: it says nothing,
            because a fixed number of passes is no less than that of steps, or the ordinary loop has run.
    """

    out_TBD: Tensor
    memory_KTBD: Tensor
    passes: int
    change: Tensor | None = None


class ParallelBlock:
    """A block whose steps run at once: the map Φ.

    Attributes:
        start_KTBD: memories to begin with: the steps' embeddings.
    """

    def __init__(self, inputs: BlockInputs):
        self.inputs = inputs
        self.carried = project_context(inputs.memory_KCBD, inputs.weights, inputs.options)
        self.start_KTBD = inputs.x_TBD.expand(len(inputs.weights.mix_KA), *inputs.x_TBD.shape)

    def __call__(self, memory_KTBD: Tensor) -> BlockResults:
        """Run all steps, given the memories that the steps before them leave."""
        given, o = self.inputs, self.inputs.options
        own = project_context(memory_KTBD[:, :-1], given.weights, o)  # no step of the block attends to its last one
        contexts = [Context(*map(torch.cat, zip(*pair))) for pair in zip(self.carried, own)]
        x_TBD = given.x_TBD
        representations = [x_TBD]
        for l, layer in enumerate(given.weights.layers):
            masks = given.dropouts.at(l)
            x_TBD = self._attend(x_TBD, layer, contexts[one_or_own(l, len(contexts))], masks)
            if layer.cross is not None:
                x_TBD = self._attend_encoder(x_TBD, layer, given.encoder[l], masks)
            residual = masks.ffn_residual_LTBD
            x_TBD = feed_forward(x_TBD, layer, o.activation, o.normalize_before, masks.hidden_LTBF, residual)
            representations.append(x_TBD)
        memory_KRD = mix_memories([x.flatten(0, 1) for x in representations], given.weights)
        return BlockResults(x_TBD, memory_KRD.view(len(memory_KRD), *x_TBD.shape))

    def _attend(self, x_TBD: Tensor, layer: Layer, context: Context, masks: FeedbackDropouts) -> Tensor:
        """A layer's attention to the memories of the steps before."""
        o, slots = self.inputs.options, len(context.keys_CBHE)
        query_TBHE = project_query(x_TBD, layer, o.heads, o.normalize_before)
        keys, values = (x.to(query_TBHE.dtype) for x in context)
        mask, span_mask_HS = masks.attention_LTBHS, layer.span_mask_HS
        if span_mask_HS is not None:
            span_mask_HS = span_mask_HS[:, : max(1, slots)]
        span = min(o.span, max(1, slots)) if span_mask_HS is None else span_mask_HS.shape[1]
        attended_TBHE = block_attention(
            query_TBHE,
            keys,
            values,
            span,
            self.inputs.weights.positions.reaching(span),
            mask and Dropout(mask.keep.permute(1, 2, 0, 3)[..., -span:], mask.scale),
            span_mask_HS,
            age_TB=self.inputs.age_TB,
        )
        return attention_residual(x_TBD, attended_TBHE, layer, o.normalize_before, masks.attention_residual_LTBD)

    def _attend_encoder(self, x_TBD: Tensor, layer: Layer, encoder: EncoderContext, masks: FeedbackDropouts) -> Tensor:
        """A layer's attention to the encoder."""
        (T, B, _), cross, before = x_TBD.shape, layer.cross, self.inputs.options.normalize_before
        query_TBHE, mask = project_query(x_TBD, cross, self.inputs.options.heads, before), masks.cross_LTBHC
        keys, values = (slots.to(query_TBHE.dtype) for slots in encoder[:2])
        attended, _ = cross_attention(  # its rows are B x T: each sentence serves T consecutive ones
            query_TBHE.transpose(0, 1).flatten(0, 1),
            keys,
            values,
            encoder.padding_BC,
            mask and Dropout(mask.keep.transpose(0, 1).flatten(0, 1), mask.scale),
        )
        attended_TBHE = attended.unflatten(0, (B, T)).transpose(0, 1)
        return attention_residual(x_TBD, attended_TBHE, cross, before, masks.cross_residual_LTBD)


def parallel_block(
    ordinary: Callable[[BlockInputs], BlockResults], passes: int, tolerance: float, inputs: BlockInputs
) -> Solution:
    """Run a block of T steps by parallel passes. The memories come out as constants.

    Args:
        ordinary: the loop that runs what does not converge.
        passes: so many, with gradients through the last ``UNROLLED``; no more than T. 0: until they converge.
        tolerance: converged is what changes no step's memory by more than this, relative to its norm; at least the
            precision of the type of matrix products.
    """
    inputs = inputs._replace(memory_KCBD=inputs.memory_KCBD.detach())
    block, T = ParallelBlock(inputs), len(inputs.x_TBD)
    if passes:
        return fixed_passes(block, min(passes, T))
    tolerance = max(tolerance, torch.finfo(product_type(inputs.x_TBD)).eps)
    with torch.no_grad():
        found, converged = solve(block, tolerance)
    if not converged:
        return Solution(*ordinary(inputs), found.passes)
    learns = any(torch.is_tensor(x) and x.requires_grad for x in pytree.tree_leaves(inputs))
    if not (torch.is_grad_enabled() and learns):
        return found
    memory_KTBD = found.memory_KTBD.requires_grad_()
    last = block(memory_KTBD)

    def gradient_of_memories(d_out_TBD: Tensor) -> Tensor:
        def through(d_memory_KTBD: Tensor) -> Tensor:
            d_results = (d_out_TBD, d_memory_KTBD)
            return torch.autograd.grad(last, memory_KTBD, d_results, retain_graph=True, materialize_grads=True)[0]

        d_memory_KTBD = torch.zeros_like(memory_KTBD)
        for _ in range(T):
            new_KTBD = through(d_memory_KTBD)
            worst, d_memory_KTBD = largest_change(d_memory_KTBD, new_KTBD), new_KTBD
            if not tolerance < worst < math.inf:  # (or not finite: fp16's loss scale is too high)
                break
        return d_memory_KTBD

    out_TBD = WithGradientOfMemories.apply(gradient_of_memories, last.out_TBD, last.memory_KTBD)
    return Solution(out_TBD, last.memory_KTBD.detach(), found.passes, found.change)


class WithGradientOfMemories(torch.autograd.Function):
    """A block's outputs as they are; backward, a pass's memories get the gradient that ``gradient_of_memories``
    computes from that of the outputs.
    """

    @staticmethod
    def forward(ctx, gradient_of_memories, out_TBD, memory_KTBD):
        ctx.gradient_of_memories = gradient_of_memories
        return out_TBD.view_as(out_TBD)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out_TBD):
        return None, d_out_TBD, ctx.gradient_of_memories(d_out_TBD)


def fixed_passes(block: ParallelBlock, passes: int) -> Solution:
    """A fixed number of passes. The last ones are differentiable."""
    memory_KTBD, before = block.start_KTBD, block.start_KTBD
    for number in range(passes):
        with torch.set_grad_enabled(torch.is_grad_enabled() and number >= passes - UNROLLED):
            before, result = memory_KTBD, block(memory_KTBD)
            memory_KTBD = result.memory_KTBD
    approximate = 1 < passes < len(block.start_KTBD[0])
    change = relative_change(before.detach(), memory_KTBD.detach()) if approximate else None
    return Solution(result.out_TBD, memory_KTBD.detach(), passes, change)


def solve(block: ParallelBlock, tolerance: float) -> tuple[Solution, bool]:
    """Repeat passes until they change nothing; after as many as steps, all are exact. Returns also whether they have
    converged.
    """
    memory_KTBD, changes, T = block.start_KTBD, [], len(block.start_KTBD[0])
    while True:
        result = block(memory_KTBD)
        changes.append(largest_change(memory_KTBD, result.memory_KTBD))
        count, before, memory_KTBD = len(changes), memory_KTBD, result.memory_KTBD
        converged = count >= T or changes[-1] <= tolerance
        stuck = count > PATIENCE and not changes[-1] < PROGRESS * changes[-1 - PATIENCE]
        if converged or stuck or count == LIMIT:
            return Solution(*result, count, relative_change(before, memory_KTBD)), converged


def relative_change(before: Tensor, after: Tensor) -> Tensor:
    """The norm of a change, relative to what it changed to."""
    before, after = before.float(), after.float()
    return (after - before).norm() / after.norm()


def largest_change(before_KTBD: Tensor, after_KTBD: Tensor) -> float:
    """The largest change of a step's memory or its gradient, relative to the average norm of steps."""
    norms_KTB, steps_KTB = (after_KTBD - before_KTBD).norm(dim=-1), after_KTBD.norm(dim=-1)
    return float(norms_KTB.max() / steps_KTB.mean().clamp(min=torch.finfo(steps_KTB.dtype).tiny))


def logged(block: Solution, passes: int) -> dict[str, Tensor]:
    """Measures of a training block, by their names in the log: ``parallel_passes``, and of a fixed number of them
    ``parallel_change``, the relative change of the memories by the last one. Say once that training is approximate, or
    that a block has not converged.

    ``passes``: their fixed number, or 0.
    """
    found = {"parallel_passes": block.out_TBD.new_tensor(float(block.passes), dtype=torch.float32)}
    if passes and block.change is not None:
        found["parallel_change"] = block.change
        log_once(f"--parallel-passes {passes}: training is approximate; validation and evaluation are exact")
    elif not passes and block.change is None:
        log_once("--step-loop parallel: a block has not converged; ordinary loops run, too")
    return found
