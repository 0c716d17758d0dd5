"""All steps of a block at once, over and over: ``--step-loop parallel``.

The memories of a block solve m = Φ(m), where Φ runs all layers over all steps in parallel, and each step attends to the
memories m of the steps before it. Repeating Φ is Jacobi iteration (Song et al., arXiv 2002.03629; for RNNs Lim et al.,
arXiv 2309.12252). ``--parallel-groups`` G makes it a block Gauss-Seidel iteration: a pass runs the steps in G groups by
stride (g, g + G, g + 2G, … together), each with what the groups before it have just computed. Its arithmetic is the
same, and what a step computes reaches the next G ones in it. With as many groups as steps it is the step loop.

A memory depends on earlier steps only: after k passes the first kG steps are exact, whatever the model. How fast the
others converge depends on how sequential the model is (docs/parallel-passes.md).

Gradients of a solution: with J the derivative of one more pass by the memories m that it begins with, and g the loss's
gradient with respect to these, the gradient of the memories solves λ = g + Jᵀλ, which is iterated as well, by
vector-Jacobian products of that pass: they take the groups in the opposite order. The gradients of weights follow from
λ in a single backward pass. Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import math

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


class ParallelBlock:
    """A block whose steps run group by group, those of a group at once: a pass. With one group it is the map Φ.

    Args:
        groups: G; no more than steps.

    Attributes:
        start_KTBD: memories to begin with: the steps' embeddings.
    """

    def __init__(self, inputs: BlockInputs, groups: int = 1):
        self.inputs, self.groups = inputs, groups
        self.carried = inputs.memory_KCBD.shape[1]
        self.start_KTBD = inputs.x_TBD.expand(len(inputs.memory_KCBD), *inputs.x_TBD.shape)
        slots_KCBD = torch.cat([inputs.memory_KCBD, self.start_KTBD], 1)
        self.contexts = project_context(slots_KCBD, inputs.weights, inputs.options)

    def __call__(self, memory_KTBD: Tensor) -> BlockResults:
        """Run all steps, given the memories that the steps before them leave."""
        given, contexts, out_TBD = self.inputs, self.contexts, self.inputs.x_TBD
        first, stride, written_KTBD = 0, 1, memory_KTBD  # of the steps whose slots are written next: all, then a group
        for group in range(self.groups):
            new = project_context(written_KTBD, given.weights, given.options)
            contexts = [
                Context(*(x.slice_scatter(slots, 0, self.carried + first, None, stride) for x, slots in zip(*pair)))
                for pair in zip(contexts, new)
            ]
            first, stride = group, self.groups
            new_TBD, written_KTBD = self._run(first, contexts)
            out_TBD = out_TBD.slice_scatter(new_TBD, 0, first, None, stride)
            memory_KTBD = memory_KTBD.slice_scatter(written_KTBD, 1, first, None, stride)
        return BlockResults(out_TBD, memory_KTBD)

    def _run(self, first: int, contexts: list[Context]) -> BlockResults:
        """Run the group of a step."""
        given, o, steps = self.inputs, self.inputs.options, slice(first, None, self.groups)
        age_TB = None if given.age_TB is None else given.age_TB[steps]
        x_TBD = given.x_TBD[steps]
        slots = self.carried + first + self.groups * (len(x_TBD) - 1)  # before the group's last step
        representations = [x_TBD]
        for l, layer in enumerate(given.weights.layers):
            masks, context = given.dropouts.at(l, steps), contexts[one_or_own(l, len(contexts))]
            query_TBHE = project_query(x_TBD, layer, o.heads, o.normalize_before)
            mask, span_mask_HS = masks.attention_LTBHS, layer.span_mask_HS
            span = min(o.span if span_mask_HS is None else span_mask_HS.shape[1], slots)
            attended_TBHE = block_attention(
                query_TBHE,
                *(x[:slots].to(query_TBHE.dtype) for x in context),
                span,
                given.weights.positions.reaching(span),
                mask and Dropout(mask.keep.permute(1, 2, 0, 3), mask.scale),
                span_mask_HS,
                age_TB=age_TB,
                stride=self.groups,
            )
            x_TBD = attention_residual(x_TBD, attended_TBHE, layer, o.normalize_before, masks.attention_residual_LTBD)
            if layer.cross is not None:
                x_TBD = self._attend_encoder(x_TBD, layer, given.encoder[l], masks)
            residual = masks.ffn_residual_LTBD
            x_TBD = feed_forward(x_TBD, layer, o.activation, o.normalize_before, masks.hidden_LTBF, residual)
            representations.append(x_TBD)
        memory_KRD = mix_memories([x.flatten(0, 1) for x in representations], given.weights)
        return BlockResults(x_TBD, memory_KRD.view(len(memory_KRD), *x_TBD.shape))

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
    passes: int, groups: int, tolerance: float, inputs: BlockInputs
) -> tuple[BlockResults, dict[str, Tensor]]:
    """Run a block of T steps by parallel passes.

    Args:
        passes: so many, with gradients through the last ``UNROLLED``; no more than T / G, after which all steps are
            exact. 0: until they converge.
        groups: G; those above T have no effect.
        tolerance: converged is what changes no step's memory by more than this, relative to its norm; at least the
            precision of the type of matrix products.

    Returns:
        The results, whose memories are constants; and measures, by their names in the log: ``parallel_passes``, and
        where a fixed number of them is an approximation ``parallel_change``, the relative change of the memories by
        the last one.
    """
    inputs = inputs._replace(memory_KCBD=inputs.memory_KCBD.detach())
    learning, T = torch.is_grad_enabled(), len(inputs.x_TBD)
    groups = min(groups, T)
    exact = math.ceil(T / groups)
    most = min(passes or exact, exact)
    block = ParallelBlock(inputs, groups)
    tolerance = max(tolerance, torch.finfo(product_type(inputs.x_TBD)).eps)
    memory_KTBD = block.start_KTBD
    for number in range(1, most + 1):
        with torch.set_grad_enabled(learning and most - number < min(passes, UNROLLED)):
            before_KTBD, found = memory_KTBD.detach(), block(memory_KTBD)
        memory_KTBD = found.memory_KTBD
        if not passes and largest_change(before_KTBD, memory_KTBD) <= tolerance:
            break
    logged = {"parallel_passes": memory_KTBD.new_tensor(number, dtype=torch.float32)}
    memory_KTBD = memory_KTBD.detach()
    if 0 < passes < exact:
        logged["parallel_change"] = relative_change(before_KTBD, memory_KTBD)
        log_once(f"--parallel-passes {passes}: training is approximate; validation and evaluation are exact")
    learning = learning and any(torch.is_tensor(x) and x.requires_grad for x in pytree.tree_leaves(inputs))
    if not passes and learning:
        last = block(memory_KTBD.requires_grad_())

        def gradient_of_memories(d_out_TBD: Tensor) -> Tensor:
            gradient_KTBD = torch.zeros_like(memory_KTBD)
            for _ in range(exact):
                before_KTBD = gradient_KTBD
                gradient_KTBD = torch.autograd.grad(
                    last, memory_KTBD, (d_out_TBD, before_KTBD), retain_graph=True, materialize_grads=True
                )[0]
                worst = largest_change(before_KTBD, gradient_KTBD)
                if not tolerance < worst < math.inf:  # (or not finite: fp16's loss scale is too high)
                    break
            return gradient_KTBD

        found = last._replace(out_TBD=WithGradientOfMemories.apply(gradient_of_memories, *last))
    return found._replace(memory_KTBD=found.memory_KTBD.detach()), logged


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


def relative_change(before: Tensor, after: Tensor) -> Tensor:
    """The norm of a change, relative to what it changed to."""
    before, after = before.float(), after.float()
    return (after - before).norm() / after.norm()


def largest_change(before_KTBD: Tensor, after_KTBD: Tensor) -> float:
    """The largest change of a step's memory or its gradient, relative to the average norm of steps."""
    norms_KTB, steps_KTB = (after_KTBD - before_KTBD).norm(dim=-1), after_KTBD.norm(dim=-1)
    return float(norms_KTB.max() / steps_KTB.mean().clamp(min=torch.finfo(steps_KTB.dtype).tiny))
