"""A block as one node of autograd's graph."""

import weakref
from collections.abc import Callable

import torch
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from fb_fairseq.ops.feedback.passes import Differentiable, Passes
from fb_fairseq.ops.feedback.types import BlockInputs, BlockResults
from fb_fairseq.ops.layers import product_type


def run_block_with(passes_for: Callable[[BlockInputs, bool], Passes], inputs: BlockInputs) -> BlockResults:
    """Run a block of T steps. The memories come out as constants.

    ``passes_for``: the passes for a block, and for whether there will be a backward pass.
    """
    learned, tree = pytree.tree_flatten(Differentiable.of(inputs))
    inputs = inputs._replace(memory_KCBD=inputs.memory_KCBD.detach(), dtype=product_type(inputs.x_TBD))

    def inputs_of(leaves) -> BlockInputs:
        return inputs._replace(**pytree.tree_unflatten(leaves, tree)._asdict())

    with torch.autocast(inputs.x_TBD.device.type, enabled=False):
        return BlockResults(*FeedbackBlock.apply(inputs_of, torch.is_grad_enabled(), passes_for, *learned))


class FeedbackBlock(torch.autograd.Function):
    """One node of autograd's graph for a whole block."""

    @staticmethod
    def forward(ctx, inputs_of, training, passes_for, *learned):
        """Run the block's forward pass.

        Args:
            inputs_of: builds the block's inputs from ``learned``.
            training: whether gradients are wanted at all.
            learned: the leaves of a ``Differentiable``.
        """
        inputs = inputs_of(learned)
        needs_backward = training and any(ctx.needs_input_grad)
        passes = passes_for(inputs, needs_backward)
        results = passes.forward(inputs)
        if needs_backward:
            ctx.passes = passes
            passes.owner = weakref.ref(ctx)
            # The passes hold them already; saved, autograd refuses a backward pass after one was changed in place.
            ctx.save_for_backward(*(x for x in learned if torch.is_tensor(x)))
        ctx.mark_non_differentiable(results.memory_KTBD)
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out_TBD, *_):
        """From the gradient of the outputs to those of ``learned``."""
        _ = ctx.saved_tensors  # raises if one was changed in place
        # None is a leaf in the tree of gradients, as it is in that of the inputs.
        gradients, _ = pytree.tree_flatten(ctx.passes.backward(d_out_TBD))
        constants = len(ctx.needs_input_grad) - len(gradients)
        needed = ctx.needs_input_grad[constants:]
        return (*[None] * constants, *(d if need else None for d, need in zip(gradients, needed)))
