"""The step loop of fused kernels, on a GPU. Importing this needs no Triton; running it does."""

import importlib.util
from typing import Optional, Sequence, Tuple

import torch

from fb_fairseq.ops import fallbacks
from fb_fairseq.ops.feedback.decoding.stepper import Stepper
from fb_fairseq.ops.feedback.fast.block import BlockInputs
from fb_fairseq.ops.feedback.fast.loop import BlockLoop, BlockRun
from fb_fairseq.ops.feedback.fused.stepper import FusedStepper
from fb_fairseq.ops.feedback.graph import blocks
from fb_fairseq.ops.feedback.graph.blocks import BlockGraphs, GraphRun
from fb_fairseq.ops.feedback.step_loop import KERNELS

WIDEST_HEAD, WIDEST_HEAD_FP32 = 256, 128  # more does not fit into the registers of a program
BF16_SINCE = (8, 0)  # compute capability


class FusedLoop(BlockLoop):
    """Five kernels per layer and step each way, as CUDA graphs.

    Attributes:
        graphs: those of blocks.
    """

    name = "fused"
    summary = "a few Triton kernels for each layer and step, as CUDA graphs"
    runs = "on a GPU; elsewhere fast runs"

    def __init__(self):
        self.graphs = BlockGraphs(new_fused_run)

    @property
    def devices(self) -> Tuple[str, ...]:
        """See ``StepLoop``."""
        return fallbacks.KERNEL_DEVICES

    @property
    def steps_on(self) -> Tuple[str, ...]:
        """See ``StepLoop``."""
        return fallbacks.KERNEL_DEVICES

    @property
    def warm_up_blocks(self) -> int:
        """See ``StepLoop``."""
        return blocks.LIMITS.capture_at

    def problem(self, device: torch.device) -> Optional[str]:
        """See ``StepLoop.problem``."""
        if device.type not in fallbacks.KERNEL_DEVICES:
            return f"its kernels need a GPU, not {device.type}"
        if importlib.util.find_spec("triton") is None:
            return "Triton is not installed"
        return fallbacks.problem_of_kernels(device.type)

    def why_not(self, inputs: BlockInputs) -> Optional[str]:
        """See ``BlockLoop.why_not``."""
        device = inputs.x_TBD.device
        problem = self.problem(device)
        if problem is not None:
            return problem
        if device.type == "cuda":
            if torch.float64 in (inputs.dtype, inputs.x_TBD.dtype):
                return "its kernels compute in fp32, fp16 or bf16, not in fp64"
            if inputs.dtype == torch.bfloat16 and torch.cuda.get_device_capability(device) < BF16_SINCE:
                return "this GPU does not compute in bf16"
        width = inputs.weights.layers[0].query.weight.shape[0] // inputs.options.heads
        widest = WIDEST_HEAD if inputs.dtype.itemsize == 2 else WIDEST_HEAD_FP32
        if width > widest:
            return f"its kernels are for heads of width {widest} or less in this type, not {width}"
        return None

    def new_run(self, inputs: BlockInputs, keep: bool, kernel: Optional[str] = None) -> Optional[BlockRun]:
        """See ``BlockLoop.new_run``: a graph, or where shapes are new or rare, kernel by kernel."""
        run = self.graphs.find(inputs, keep)[0] if inputs.x_TBD.device.type in fallbacks.GRAPH_DEVICES else None
        return new_fused_run(keep) if run is None else run

    def trial_kernels(self, device: torch.device) -> Sequence[str]:
        """See ``BlockLoop.trial_kernels``."""
        return KERNELS[:1] if self.problem(device) is None and fallbacks.can_capture(device) else ()

    def trial_run(self, inputs: BlockInputs, keep: bool) -> BlockRun:
        """See ``BlockLoop.trial_run``.

        Raises:
            CaptureError: capturing has failed, now or before.
        """
        with fallbacks.trying_to_capture(inputs.x_TBD.device):
            return GraphRun(inputs, keep, new_fused_run)

    def new_stepper(self, asked: bool = True) -> Stepper:
        """See ``StepLoop.new_stepper``."""
        return FusedStepper(asked)


def new_fused_run(keep: bool) -> BlockRun:
    """What runs a block kernel by kernel."""
    from fb_fairseq.ops.feedback.fused.run import FusedRun

    return FusedRun(keep)
