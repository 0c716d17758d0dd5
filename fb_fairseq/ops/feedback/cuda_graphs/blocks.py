"""Finds the captured passes for a block, or captures them.

A block is captured once blocks of the same shapes have come often enough. Those in between, on a memory that still
grows from block to block, are not: each of their shapes comes once per epoch.

Before a graph of kernels is used, its block is computed twice: by the graph, and by torch's operations. Kernels that
fail or compute something else are named once in the log and not used; then torch's operations are captured.
"""

from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fb_fairseq.ops import capturing
from fb_fairseq.ops.agreement import in_fp32
from fb_fairseq.ops.captures import Captures, Comparison, Setting, modes_of_products
from fb_fairseq.ops.feedback.cuda_graphs.passes import CapturedPasses
from fb_fairseq.ops.feedback.loop import Loop
from fb_fairseq.ops.feedback.passes import Passes, passes_of
from fb_fairseq.ops.feedback.types import BlockInputs, block_sizes

CAPTURE_FULL_AT = 2  # blocks on a full memory, which streams have again and again


class BlockGraphs(Captures):
    """The captured blocks, by the shapes they are for. Each holds the memory for a block's activations. Blocks that
    follow each other come again and again; of others, such as sentences, many shapes are too rare for a capture.

    Args:
        reference: the loop that runs where kernels do not.
    """

    capture_at, kept = 10, 4

    def __init__(self, reference: Loop):
        super().__init__()
        self._reference = reference

    def passes_for(self, loop: Loop, inputs: BlockInputs, needs_backward: bool) -> Passes:
        """The passes that run a block: captured ones; or where shapes are new or rare, kernel by kernel."""
        leaves, tree = pytree.tree_flatten(inputs)
        setting = kernel_setting(loop, inputs, needs_backward, leaves)
        if setting not in self.problems:
            problem = loop.unsupported(inputs)
            if problem is not None:
                self.refuse(setting, problem)
        comparison = partial(self._comparison, inputs, needs_backward)
        carried = inputs.memory_KCBD.shape[1]
        if capturing.can_capture(inputs.x_TBD.device) and carried in (0, inputs.options.span):
            captured = self.find(
                block_key(needs_backward, leaves, tree),
                setting,
                kernels=partial(CapturedPasses, loop, inputs, needs_backward),
                operations=partial(CapturedPasses, self._reference, inputs, needs_backward),
                comparison=comparison,
                at=CAPTURE_FULL_AT if carried else None,
            )
            if captured is not None:
                return captured
        passes = passes_of(loop, needs_backward)
        right = self.trusts(setting, partial(comparison, passes))
        return passes if right else passes_of(self._reference, needs_backward)

    def _comparison(self, inputs: BlockInputs, needs_backward: bool, passes: Passes) -> Comparison:
        """The results of passes and of torch's operations, with all gradients."""
        reference = passes_of(self._reference, needs_backward)
        run = partial(results, passes, inputs, needs_backward)
        expected = partial(results, reference, inputs, needs_backward)

        def exact() -> list[Any]:
            return results(reference, in_fp32(inputs)._replace(dtype=torch.float32), needs_backward)

        half = inputs.dtype.itemsize < torch.float32.itemsize
        return Comparison(run, expected, inputs.dtype, exact if half else None)


def results(passes: Passes, inputs: BlockInputs, needs_backward: bool) -> list[Any]:
    """A block's results and gradients, for a gradient of the outputs that is made up."""
    x_TBD = inputs.x_TBD
    groups: list[Any] = [passes.forward(inputs)]
    if needs_backward:
        d_out_TBD = torch.arange(x_TBD.numel(), device=x_TBD.device).cos().view(x_TBD.shape)
        groups.append(passes.backward(d_out_TBD.to(x_TBD.dtype)))
        passes.free()
    return groups


def kernel_setting(loop: Loop, inputs: BlockInputs, needs_backward: bool, leaves: list) -> Setting:
    """Everything that kernels depend on, but for the lengths of blocks and memories and the number of streams.

    Args:
        leaves: of the block; which of them are there (spans, positions, biases, masks, …) is a part of it.
    """
    s = block_sizes(inputs)
    options = inputs.options._replace(span=0)
    types = inputs.dtype, inputs.x_TBD.dtype, inputs.x_TBD.device, *modes_of_products()
    kinds = tuple(x is None for x in leaves)
    return (loop.name, needs_backward, s.D, s.L, s.E, s.F, s.K, s.I, options, types, kinds)


def block_key(needs_backward: bool, leaves: list, tree: pytree.TreeSpec) -> tuple:
    """Everything that a capture depends on, except the values of tensors. ``leaves``, ``tree``: of the block."""
    return (
        needs_backward,
        *modes_of_products(),
        str(tree),
        *((x.shape, x.dtype, x.device) if torch.is_tensor(x) else x for x in leaves),
    )
