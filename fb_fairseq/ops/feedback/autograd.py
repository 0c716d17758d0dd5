"""A block as one node of autograd's graph."""

import weakref
from collections.abc import Callable

import torch
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from fb_fairseq.ops.feedback.passes import Differentiable, Passes
from fb_fairseq.ops.feedback.types import BlockInputs, BlockResults
from fb_fairseq.ops.products import product_type


def run_block_with(passes_for: Callable[[BlockInputs, bool], Passes], inputs: BlockInputs) -> BlockResults:
    """Run a block of T steps. The memories come out as constants.

    Args:
        passes_for: chooses the passes for a block, and for whether there will be a backward pass.
        inputs: the block; ``dtype`` is set here.
    """
    inputs = inputs._replace(memory_KCBD=inputs.memory_KCBD.detach(), dtype=product_type(inputs.x_TBD))
    leaves = pytree.tree_leaves(Differentiable.of(inputs))
    needs_backward = torch.is_grad_enabled() and any(torch.is_tensor(x) and x.requires_grad for x in leaves)
    with torch.autocast(inputs.x_TBD.device.type, enabled=False):
        with torch.no_grad():
            passes = passes_for(inputs, needs_backward)
        return BlockResults(*FeedbackBlock.apply(passes, inputs, *leaves))


class FeedbackBlock(torch.autograd.Function):
    """The node: it runs a block's passes. Autograd sees the leaves that gradients flow to."""

    @staticmethod
    def forward(ctx, passes, inputs, *leaves):
        """Run the block's forward pass.

        Args:
            passes: of the block.
            inputs: the block.
            leaves: those of its ``Differentiable``.

        Returns:
            The fields of ``BlockResults``.
        """
        results = passes.forward(inputs)
        if passes.needs_backward:
            ctx.passes = passes
            passes.held_by(weakref.ref(ctx))
            # The passes hold them already; saved, autograd refuses a backward pass after one was changed in place.
            ctx.save_for_backward(*(x for x in leaves if torch.is_tensor(x)))
        ctx.mark_non_differentiable(results.memory_KTBD)
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out_TBD, *_):
        """From the gradient of the outputs to those of the leaves; None for passes and inputs."""
        _ = ctx.saved_tensors  # raises if one was changed in place
        # None is a leaf in the tree of gradients, as it is in that of the inputs.
        gradients = pytree.tree_leaves(ctx.passes.backward(d_out_TBD))
        needed = ctx.needs_input_grad[2:]
        return None, None, *(d if need else None for d, need in zip(gradients, needed))
