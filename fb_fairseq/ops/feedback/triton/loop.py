"""The step loop of Triton kernels, on a GPU. Importing this needs no Triton; running it does."""

import importlib.util

import torch
from torch import Tensor

from fb_fairseq.ops import capturing
from fb_fairseq.ops.feedback.loop import Loop
from fb_fairseq.ops.feedback.ring import KEYS_VALUES

WIDEST_HEAD, WIDEST_HEAD_FP32 = 256, 128  # more does not fit into the registers of a program


class TritonLoop(Loop):
    """About five kernels per layer and step each way, and a few around them, as CUDA graphs."""

    name = "triton"
    summary = "a few Triton kernels for each layer and step, as CUDA graphs; elsewhere the reference as CUDA graphs"
    runs = "on a GPU; elsewhere the reference runs"
    records_weights = False
    as_graphs = True

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices with Triton's kernels, or CUDA graphs at least."""
        return capturing.KERNEL_DEVICES + capturing.GRAPH_DEVICES

    def unsupported(self, inputs) -> str | None:
        width = inputs.weights.layers[0].query.weight.shape[0] // inputs.options.heads
        return problem_of_kernels(inputs.x_TBD, inputs.dtype, width)

    def forward_steps(self, block, record, first, last, again=False) -> None:
        from fb_fairseq.ops.feedback.triton.forward import BlockKernels

        if block.own is None:
            block.own = BlockKernels(block)
        block.own.forward(block, record, first, last, again)

    def backward_tile(self, block, tile, d_out_TBD, d_x_TBD) -> None:
        from fb_fairseq.ops.feedback.triton.backward import BackwardKernels

        BackwardKernels(block, block.own, tile).run(d_out_TBD, d_x_TBD)

    def covers_step(self, stack, inputs) -> bool:
        x_BD, ring = inputs.x_BD, inputs.ring
        if not stack.uses_feedback_step or ring.storage != KEYS_VALUES:
            return False
        same_type = all(parameter.dtype == x_BD.dtype == ring.buffer.dtype for parameter in stack.step_parameters())
        return same_type and problem_of_kernels(x_BD, x_BD.dtype, ring.buffer.shape[-1]) is None

    def decode(self, stack, kept, inputs):
        from fb_fairseq.ops.feedback.triton.steps import run_step

        return run_step(stack.step_weights(inputs.ring, inputs.x_BD.device), inputs)


def problem_of_kernels(x: Tensor, dtype: torch.dtype, width: int) -> str | None:
    """The reason why there are no kernels for a block or a step; None if there are.

    Args:
        x: its embeddings.
        dtype: of matrix products.
        width: of a head, E.
    """
    if x.device.type not in capturing.KERNEL_DEVICES:
        return f"its kernels need a GPU, not {x.device.type}"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if x.device.type == "cuda" and torch.float64 in (dtype, x.dtype):
        return "its kernels compute in fp32, fp16 or bf16, not in fp64"
    widest = WIDEST_HEAD if dtype.itemsize == 2 else WIDEST_HEAD_FP32
    if width > widest:
        return f"its kernels are for heads of width {widest} or less in this type, not {width}"
    return None
