"""The Feedback Transformer's step loop as one ``autograd.Function`` a block. Its plain twin: ``feedback_reference``.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from fb_fairseq.ops.feedback_fast_backward import Backward
from fb_fairseq.ops.feedback_fast_forward import Block
from fb_fairseq.ops.feedback_reference import EncoderContext, FeedbackDropouts, FeedbackOptions, FeedbackWeights


def feedback_block_fast(
    x_TBD: Tensor,
    memory_KCBD: Tensor,
    weights: FeedbackWeights,
    options: FeedbackOptions,
    dropouts: FeedbackDropouts = FeedbackDropouts(),
    active: Optional[Sequence[bool]] = None,
    encoder: Sequence[EncoderContext] = (),
    reach_TB: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    """See ``feedback_reference.feedback_block``. The memories and the aligned attention come out as constants."""
    active = [True] * len(weights.layers) if active is None else list(active)
    learned, tree = pytree.tree_flatten((x_TBD, weights, list(encoder)))
    device = x_TBD.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x_TBD.dtype
    constants = (memory_KCBD.detach(), options, dropouts, active, reach_TB, dtype)
    with torch.autocast(device, enabled=False):
        out_TBD, memory_KTBD, aligned_BTC = FeedbackBlock.apply(tree, constants, torch.is_grad_enabled(), *learned)
    return out_TBD, memory_KTBD, aligned_BTC


class FeedbackBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tree, constants, training, *learned):
        x_TBD, weights, encoder = pytree.tree_unflatten(learned, tree)
        memory_KCBD, options, dropouts, active, reach_TB, dtype = constants
        block = Block(x_TBD, memory_KCBD, weights, options, dropouts, active, encoder, reach_TB, dtype)
        keep = training and any(ctx.needs_input_grad)
        out_TBD, record, aligned_BTC = block.run(keep and not options.recompute)
        if keep:
            ctx.block, ctx.record, ctx.encoder = block, record, encoder
            ctx.save_for_backward(*(x for x in learned if torch.is_tensor(x)))  # refused if one was changed since
        ctx.mark_non_differentiable(block.memory_KTBD)
        if aligned_BTC is not None:
            ctx.mark_non_differentiable(aligned_BTC)
        return out_TBD, block.memory_KTBD, aligned_BTC

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out_TBD, *_):
        ctx.saved_tensors  # noqa: B018  see above
        backward = Backward(ctx.block, ctx.record)
        d_x_TBD = backward.run(d_out_TBD)
        d_encoder = [
            EncoderContext(d.keys_CBHE.to(own.keys_CBHE.dtype), d.values_CBHE.to(own.values_CBHE.dtype), own.padding_BC)
            for d, own in zip(backward.encoder(), ctx.encoder)
        ]
        # None stands for itself in the tree of gradients, as in that of the inputs.
        gradients, _ = pytree.tree_flatten((d_x_TBD, backward.weights(), d_encoder))
        gradients = [
            d if need and torch.is_tensor(d) and d.is_floating_point() else None
            for d, need in zip(gradients, ctx.needs_input_grad[3:])
        ]
        return (None, None, None, *gradients)
