"""The Feedback Transformer's step loop as one ``autograd.Function`` a block. Its plain twin: ``feedback_reference``.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import copy
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


BUFFERS = ("keys_IGCE", "values_IGCE", "memory_KTBD")


def put_aside(holder, names):
    """A copy without these attributes."""
    result = copy.copy(holder)
    for name in names:
        delattr(result, name)
    return result


def put_back(holder, names, tensors):
    result = copy.copy(holder)
    for name, tensor in zip(names, tensors):
        setattr(result, name, tensor)
    return result


class FeedbackBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tree, constants, training, *learned):
        x_TBD, weights, encoder = pytree.tree_unflatten(learned, tree)
        memory_KCBD, options, dropouts, active, reach_TB, dtype = constants
        block = Block(x_TBD, memory_KCBD, weights, options, dropouts, active, encoder, reach_TB, dtype)
        keep = training and any(ctx.needs_input_grad)
        out_TBD, record, aligned_BTC = block.run(keep and not options.recompute)
        if keep:
            # Saved the usual way: freed after the backward pass, seen by hooks, and refused if an input was changed.
            ctx.block, ctx.record, ctx.encoder = put_aside(block, BUFFERS), record, encoder
            ctx.names = [] if record is None else sorted(vars(record))
            buffers = [getattr(block, name) for name in BUFFERS] + [getattr(record, name) for name in ctx.names]
            ctx.save_for_backward(*buffers, *(x for x in learned if torch.is_tensor(x)))
            ctx.record = record and put_aside(record, ctx.names)
        ctx.mark_non_differentiable(block.memory_KTBD)
        if aligned_BTC is not None:
            ctx.mark_non_differentiable(aligned_BTC)
        return out_TBD, block.memory_KTBD, aligned_BTC

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out_TBD, *_):
        saved = ctx.saved_tensors
        block = put_back(ctx.block, BUFFERS, saved)
        record = ctx.record and put_back(ctx.record, ctx.names, saved[len(BUFFERS) :])
        backward = Backward(block, record)
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
