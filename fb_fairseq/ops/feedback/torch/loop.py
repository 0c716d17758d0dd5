"""The step loop as one ``autograd.Function`` per block. It computes what ``reference.py`` computes.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import weakref
from typing import Callable, ContextManager, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from fb_fairseq.ops import fallbacks
from fb_fairseq.ops.feedback.step_loop import FALLBACK, StepLoop
from fb_fairseq.ops.feedback.torch.backward import BlockBackward
from fb_fairseq.ops.feedback.torch.block import BlockInputs
from fb_fairseq.ops.feedback.torch.forward import Block
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackDropouts, FeedbackOptions, FeedbackWeights
from fb_fairseq.ops.threads import loop_threads


class Differentiable(NamedTuple):
    """The arguments of a block that gradients flow to."""

    x_TBD: Tensor
    weights: FeedbackWeights
    encoder: List[EncoderContext]


class BlockRun:
    """The two passes over a block, operation by operation.

    Args:
        keep: whether there will be a backward pass.
    """

    backward_class = BlockBackward

    def __init__(self, keep: bool):
        self.keep = keep
        self.holder: Callable[[], Optional[object]] = lambda: None  # the autograd context that this run belongs to

    def make_block(self, inputs: BlockInputs, threads: int) -> Block:
        """What runs the forward pass.

        Args:
            threads: how many there are.
        """
        return Block(inputs)

    def forward(self, inputs: BlockInputs) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        """The block's results; see ``fb_fairseq.ops.feedback.reference.feedback_block``."""
        with self._threads(inputs) as threads:
            block = self.make_block(inputs, threads)
            out_TBD, record, aligned_BTC = block.run(self.keep and not inputs.options.recompute)
        if self.keep:
            self.block, self.record = block, record
        return out_TBD, block.memory_KTBD, aligned_BTC

    def backward(self, d_out_TBD: Tensor) -> Differentiable:
        """The gradients of ``Differentiable``, in the same structure."""
        with self._threads(self.block.inputs):
            backward = self.backward_class(self.block, self.record)
            d_x_TBD = backward.run(d_out_TBD)
            return Differentiable(d_x_TBD, backward.weights(), backward.encoder())

    def forget(self) -> None:
        """Free what a forward pass has kept, once its backward pass is done."""
        self.block = self.record = None

    def _threads(self, inputs: BlockInputs) -> ContextManager[int]:
        return loop_threads(inputs.x_TBD.device, self.largest_product(inputs))

    def largest_product(self, inputs: BlockInputs) -> int:
        """Multiplications and additions of the largest product that torch computes in each step."""
        return 2 * inputs.x_TBD.shape[1] * inputs.weights.layers[0].fc1.weight.numel()


def feedback_block_torch(
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
    """Run a block of T steps; see ``fb_fairseq.ops.feedback.reference.feedback_block``.

    The memories and the attention to the encoder come out as constants.

    Args:
        choose_run: what runs the two passes of a block, and whether there will be a backward pass; see
            ``BlockLoop.choose_run``.
    """
    active = [True] * len(weights.layers) if active is None else list(active)
    learned, tree = pytree.tree_flatten(Differentiable(x_TBD, weights, list(encoder)))
    device = x_TBD.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x_TBD.dtype

    def inputs_of(leaves) -> BlockInputs:
        given = Differentiable(*pytree.tree_unflatten(leaves, tree))
        return BlockInputs(
            given.x_TBD, memory_KCBD.detach(), given.weights, options, dropouts, active, given.encoder, reach_TB, dtype
        )

    with torch.autocast(device, enabled=False):
        return FeedbackBlock.apply(inputs_of, torch.is_grad_enabled(), choose_run, *learned)


class FeedbackBlock(torch.autograd.Function):
    """One node of autograd's graph for a whole block."""

    @staticmethod
    def forward(ctx, inputs_of, training, choose_run, *learned):
        """Run the block's forward pass.

        Args:
            inputs_of: builds the block's inputs from ``learned``.
            training: whether gradients are wanted at all.
            learned: the leaves of a ``Differentiable``.
        """
        inputs = inputs_of(learned)
        keep = training and any(ctx.needs_input_grad)
        run = choose_run(inputs, keep)
        out_TBD, memory_KTBD, aligned_BTC = run.forward(inputs)
        if keep:
            ctx.run = run
            run.holder = weakref.ref(ctx)
            # The run holds them already; saved, autograd refuses a backward pass after one was changed in place.
            ctx.save_for_backward(*(x for x in learned if torch.is_tensor(x)))
        ctx.mark_non_differentiable(memory_KTBD)
        if aligned_BTC is not None:
            ctx.mark_non_differentiable(aligned_BTC)
        return out_TBD, memory_KTBD, aligned_BTC

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out_TBD, *_):
        """From the gradient of the outputs to those of ``learned``."""
        _ = ctx.saved_tensors  # raises if one was changed in place
        # None is a leaf in the tree of gradients, as it is in that of the inputs.
        gradients, _ = pytree.tree_flatten(ctx.run.backward(d_out_TBD))
        constants = len(ctx.needs_input_grad) - len(gradients)
        needed = ctx.needs_input_grad[constants:]
        return (*[None] * constants, *(d if need else None for d, need in zip(gradients, needed)))


class BlockLoop(StepLoop):
    """A loop that runs a block as one node of autograd's graph."""

    def run_block(self, *arguments) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        """See ``StepLoop.run_block``."""
        return feedback_block_torch(*arguments, choose_run=self.choose_run)

    def why_not(self, inputs: BlockInputs) -> Optional[str]:
        """Why the loop does not cover a block; None: it does."""
        return None

    def new_run(self, inputs: BlockInputs, keep: bool) -> Optional[BlockRun]:
        """What runs a block that the loop covers; None: nothing, for now."""
        return BlockRun(keep)

    def choose_run(self, inputs: BlockInputs, keep: bool) -> BlockRun:
        """What runs a block: this loop, or the fast one, which is logged once with the reason."""
        reason = self.why_not(inputs)
        if reason is not None:
            fallbacks.log_once(f"--step-loop {self.name}: {reason}; the torch loop runs")
        run = self.new_run(inputs, keep) if reason is None else None
        return BlockRun(keep) if run is None else run


class TorchLoop(BlockLoop):
    """The loop with a hand-written backward pass, operation by operation."""

    name = FALLBACK
    summary = "PyTorch's operations, with a backward pass written by hand"
    runs = "everywhere"
