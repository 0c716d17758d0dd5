"""The Feedback Transformer's step loop as one ``autograd.Function`` a block. Its plain twin: ``feedback_reference``.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import weakref
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from fb_fairseq.ops.feedback.backward import Backward
from fb_fairseq.ops.feedback.forward import Block
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackDropouts, FeedbackOptions, FeedbackWeights


class BlockInputs(NamedTuple):
    """Arguments of ``feedback_reference.feedback_block``, and the type that is computed in."""

    x_TBD: Tensor
    memory_KCBD: Tensor
    weights: FeedbackWeights
    options: FeedbackOptions
    dropouts: FeedbackDropouts
    active: List[bool]
    encoder: List[EncoderContext]
    reach_TB: Optional[Tensor]
    dtype: torch.dtype


class BlockRun:
    """The two passes over a block, operation by operation.

    keep: whether there will be a backward pass.
    """

    def __init__(self, keep: bool):
        self.keep = keep

    def forward(self, inputs: BlockInputs) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        block = Block(*inputs)
        out_TBD, record, aligned_BTC = block.run(self.keep and not inputs.options.recompute)
        if self.keep:
            self.block, self.record = block, record
        return out_TBD, block.memory_KTBD, aligned_BTC

    def backward(self, d_out_TBD: Tensor) -> Tuple[Tensor, FeedbackWeights, List[EncoderContext]]:
        """The gradients of embeddings, weights and encoder contexts, each in its place."""
        backward = Backward(self.block, self.record)
        d_x_TBD = backward.run(d_out_TBD)
        return d_x_TBD, backward.weights(), backward.encoder()


def feedback_block_fast(
    x_TBD: Tensor,
    memory_KCBD: Tensor,
    weights: FeedbackWeights,
    options: FeedbackOptions,
    dropouts: FeedbackDropouts = FeedbackDropouts(),
    active: Optional[Sequence[bool]] = None,
    encoder: Sequence[EncoderContext] = (),
    reach_TB: Optional[Tensor] = None,
    choose_run: Callable[[BlockInputs, bool], BlockRun] = lambda inputs, keep: BlockRun(keep),
) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    """See ``feedback_reference.feedback_block``. The memories and the aligned attention come out as constants."""
    active = [True] * len(weights.layers) if active is None else list(active)
    learned, tree = pytree.tree_flatten((x_TBD, weights, list(encoder)))
    device = x_TBD.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x_TBD.dtype
    constants = (memory_KCBD.detach(), options, dropouts, active, reach_TB, dtype)
    with torch.autocast(device, enabled=False):
        return FeedbackBlock.apply(tree, constants, torch.is_grad_enabled(), choose_run, *learned)


class FeedbackBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tree, constants, training, choose_run, *learned):
        x_TBD, weights, encoder = pytree.tree_unflatten(learned, tree)
        memory_KCBD, options, dropouts, active, reach_TB, dtype = constants
        inputs = BlockInputs(x_TBD, memory_KCBD, weights, options, dropouts, active, encoder, reach_TB, dtype)
        keep = training and any(ctx.needs_input_grad)
        run = choose_run(inputs, keep)
        out_TBD, memory_KTBD, aligned_BTC = run.forward(inputs)
        if keep:
            ctx.run = run
            run.holder = weakref.ref(ctx)
            ctx.save_for_backward(*(x for x in learned if torch.is_tensor(x)))  # refused if one was changed since
        ctx.mark_non_differentiable(memory_KTBD)
        if aligned_BTC is not None:
            ctx.mark_non_differentiable(aligned_BTC)
        return out_TBD, memory_KTBD, aligned_BTC

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out_TBD, *_):
        ctx.saved_tensors  # noqa: B018  see above
        # None stands for itself in the tree of gradients, as in that of the inputs.
        gradients, _ = pytree.tree_flatten(ctx.run.backward(d_out_TBD))
        gradients = [d if need else None for d, need in zip(gradients, ctx.needs_input_grad[4:])]
        return (None, None, None, None, *gradients)
