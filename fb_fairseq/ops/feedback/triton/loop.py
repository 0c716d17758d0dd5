"""The step loop of Triton kernels, on a GPU. Importing this needs no Triton; running it does.

What its kernels do not cover, or compute wrongly here, runs as the torch loop's operations, also in CUDA graphs.
"""

import importlib.util
from functools import partial
from typing import Callable, Dict, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops import fallbacks
from fb_fairseq.ops.agreement import disagreement
from fb_fairseq.ops.feedback.cuda_graphs import blocks
from fb_fairseq.ops.feedback.cuda_graphs.blocks import BlockGraphs
from fb_fairseq.ops.feedback.cuda_graphs.ring import DeviceRing
from fb_fairseq.ops.feedback.cuda_graphs.stepper import GraphStepper
from fb_fairseq.ops.feedback.decoding.ring import MemoryRing
from fb_fairseq.ops.feedback.decoding.stepper import StepModel, Stepper
from fb_fairseq.ops.feedback.decoding.storage import KeyValueStorage
from fb_fairseq.ops.feedback.torch.block import BlockInputs, block_sizes
from fb_fairseq.ops.feedback.torch.loop import BlockLoop, BlockRun
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, StepOutput

WIDEST_HEAD, WIDEST_HEAD_FP32 = 256, 128  # more does not fit into the registers of a program
BF16_SINCE = (8, 0)  # compute capability


class TritonLoop(BlockLoop):
    """Five kernels per layer and step each way, as CUDA graphs.

    Attributes:
        graphs: those of blocks.
    """

    name = "triton"
    summary = "a few Triton kernels for each layer and step, as CUDA graphs"
    runs = "on a GPU; elsewhere torch runs"
    preferred_on = ("cuda",)

    def __init__(self):
        self.graphs = BlockGraphs()
        self._problems: Dict[Tuple, Optional[str]] = {}  # of the kernels, by setting

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

    def why_not(self, inputs: BlockInputs) -> Optional[str]:
        """See ``BlockLoop.why_not``."""
        return self.problem(inputs.x_TBD.device)

    def new_run(self, inputs: BlockInputs, keep: bool) -> Optional[BlockRun]:
        """See ``BlockLoop.new_run``: a graph, or where shapes are new or rare, kernel by kernel."""
        make = new_triton_run if self.problem_of_kernels(inputs, keep) is None else BlockRun
        run = self.graphs.find(inputs, keep, make)[0] if inputs.x_TBD.device.type in fallbacks.GRAPH_DEVICES else None
        return make(keep) if run is None else run

    def problem_of_kernels(self, inputs: BlockInputs, keep: bool) -> Optional[str]:
        """Why the kernels do not compute a block; None: they do. The first block of a setting is computed twice, and
        compared with the torch loop's."""
        key = setting(inputs, keep)
        if key not in self._problems:
            problem = not_covered(inputs)
            if problem is None:
                runs = (new_triton_run(keep), BlockRun(keep))
                problem = disagreement(*(partial(passes, run, inputs, keep) for run in runs), inputs.dtype)
            if problem is not None:
                fallbacks.log_once(f"--step-loop triton: {problem}; torch's operations run, as CUDA graphs")
            self._problems[key] = problem
        return self._problems[key]

    def new_stepper(self, asked: bool = True) -> Stepper:
        """See ``StepLoop.new_stepper``."""
        return GraphStepper(step_of, asked)


def not_covered(inputs: BlockInputs) -> Optional[str]:
    """Why the kernels are not for a block; None: they are."""
    device, dtype = inputs.x_TBD.device, inputs.dtype
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if device.type == "cuda" and torch.float64 in (dtype, inputs.x_TBD.dtype):
        return "its kernels compute in fp32, fp16 or bf16, not in fp64"
    if device.type == "cuda" and dtype == torch.bfloat16 and torch.cuda.get_device_capability(device) < BF16_SINCE:
        return "this GPU does not compute in bf16"
    width = inputs.weights.layers[0].query.weight.shape[0] // inputs.options.heads
    widest = WIDEST_HEAD if dtype.itemsize == 2 else WIDEST_HEAD_FP32
    return f"its kernels are for heads of width {widest} or less in this type, not {width}" if width > widest else None


def setting(inputs: BlockInputs, keep: bool) -> Tuple:
    """What the kernels depend on. It holds for blocks of other lengths and numbers of streams too."""
    s = block_sizes(inputs)
    kinds = [mask is not None for mask in inputs.dropouts] + [bool(inputs.encoder), inputs.reach_TB is not None]
    return (keep, s.D, s.L, s.E, s.F, s.K, s.I, inputs.options._replace(span=0), inputs.dtype, *kinds)


def new_triton_run(keep: bool) -> BlockRun:
    """What runs a block kernel by kernel."""
    from fb_fairseq.ops.feedback.triton.run import TritonRun

    return TritonRun(keep)


def passes(run: BlockRun, inputs: BlockInputs, keep: bool) -> list:
    """A block's results and gradients, for a gradient of the outputs that is made up."""
    x_TBD = inputs.x_TBD
    groups = [run.forward(inputs)]
    if keep:
        d_out_TBD = torch.arange(x_TBD.numel(), device=x_TBD.device).cos().view(x_TBD.shape).to(x_TBD.dtype)
        groups.append(run.backward(d_out_TBD))
        run.forget()
    return groups


def step_of(
    model: StepModel, x_BD: Tensor, ring: MemoryRing, options: FeedbackOptions, encoder: Sequence[EncoderContext]
) -> Callable[..., StepOutput]:
    """The step of a model that is captured: of Triton kernels, or where they do not cover it, of torch's operations."""
    covered = (
        model.plain_layers
        and isinstance(ring.storage, KeyValueStorage)
        and importlib.util.find_spec("triton") is not None
        and all(parameter.dtype == x_BD.dtype == ring.buffer.dtype for parameter in model.step_parameters())
    )
    if not covered:
        return model.plain_step
    ways = partial(triton_step, model), model.plain_step
    problem = disagreement(*(partial(try_step, way, x_BD, ring, options, encoder) for way in ways), x_BD.dtype)
    if problem is not None:
        fallbacks.log_once(f"--step-loop triton: decoding: {problem}; torch's operations run, as CUDA graphs")
    return ways[problem is not None]


def triton_step(model: StepModel, x_BD, ring, options, encoder=()) -> StepOutput:
    """A step of Triton kernels."""
    from fb_fairseq.ops.feedback.triton.steps import StepBlock

    return StepBlock(model.step_weights(ring, x_BD.device), x_BD, ring, options, encoder).step()


def try_step(step: Callable[..., StepOutput], x_BD, ring, options, encoder) -> list:
    """A step's output and memories, and the slots after it, for a ring that stays as it is."""
    own = DeviceRing(ring, len(x_BD))
    own.copy_rows(ring)
    own.before_replay(ring.position)
    result = step(x_BD, own, options, encoder)
    return [[result.out_BD, result.memory_KBD, own.buffer]]
