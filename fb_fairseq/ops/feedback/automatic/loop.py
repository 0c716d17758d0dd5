"""``--step-loop auto`` for blocks: a loop that is taken untried where it can run (the native one on a CPU); elsewhere,
on a GPU, the fastest loop that agrees with the fast one.

On a GPU the first blocks run operation by operation. Then every loop that could run is tried on a block, with the
gradients of a made-up loss; see ``fb_fairseq.ops.trials``.
"""

from collections import Counter
from functools import partial
from typing import Callable, Dict, List, Tuple

import torch

from fb_fairseq.ops import fallbacks
from fb_fairseq.ops.cuda_graph import modes_of_products
from fb_fairseq.ops.feedback.automatic.stepper import AutomaticStepper
from fb_fairseq.ops.feedback.decoding.stepper import Stepper
from fb_fairseq.ops.feedback.fast.block import BlockInputs, block_sizes
from fb_fairseq.ops.feedback.fast.loop import BlockLoop, BlockRun
from fb_fairseq.ops.feedback.step_loop import AUTO, FALLBACK, KERNELS, LoopChoice, StepLoop
from fb_fairseq.ops.trials import Choices, in_fp32, ranking

TRY_AT = 10  # number of the block on which loops are tried


class AutomaticLoop(BlockLoop):
    """Chooses what runs each block.

    Args:
        loops: returns all loops, by name.

    Attributes:
        rankings: for each setting the loops that agree with the fast one, the fastest first.
    """

    name = AUTO
    summary = (
        "on a CPU native where it can run, otherwise fast; on a GPU fast for some blocks, then whichever of fast, "
        "graph (both with either kernel) and fused is fastest and computes the same"
    )
    runs = "everywhere"
    reason = (
        "native on a CPU in fp32 where it can be compiled, otherwise fast; "
        "on a GPU the loops are tried after some blocks"
    )

    def __init__(self, loops: Callable[[], Dict[str, StepLoop]]):
        self._loops = loops
        self.blocks: Counter = Counter()  # since the last attempt
        self.rankings = Choices("step loop", [LoopChoice(FALLBACK)], LoopChoice)

    @property
    def warm_up_blocks(self) -> int:
        """See ``StepLoop``."""
        return TRY_AT + max((loop.warm_up_blocks for loop in self._candidates().values()), default=0)

    def _candidates(self) -> Dict[str, BlockLoop]:
        """The loops that a choice is made among, the fast one first."""
        found = {name: loop for name, loop in self._loops().items() if isinstance(loop, BlockLoop) and loop is not self}
        return {FALLBACK: found[FALLBACK], **found}

    def choose_run(self, inputs: BlockInputs, keep: bool) -> BlockRun:
        """See ``BlockLoop.choose_run``."""
        device = inputs.x_TBD.device
        if device.type in fallbacks.GRAPH_DEVICES:
            return self._find(inputs, keep)
        for loop in self._candidates().values():
            if loop.taken_untried(device) and loop.why_not(inputs) is None:
                run = loop.new_run(inputs, keep)
                if run is not None:
                    return run
        return BlockRun(keep)

    def _find(self, inputs: BlockInputs, keep: bool) -> BlockRun:
        """What runs a block on a GPU: the fast loop until the loops have been tried."""
        key = setting(inputs, keep)
        if key not in self.rankings:
            self.blocks[key] += 1
            if self.blocks[key] < TRY_AT:
                return BlockRun(keep, KERNELS[0])
            self.blocks[key] = 0
        ranked = self.rankings.find(key, lambda: self._try(inputs, keep))
        candidates, asked = self._candidates(), set()
        for choice in ranked or ():
            loop = candidates.get(choice.loop)
            if loop is None or choice.loop in asked or loop.why_not(inputs) is not None:
                continue
            asked.add(choice.loop)
            run = loop.new_run(inputs, keep, choice.kernel)
            if run is not None:  # (a graph is None if the block's shapes are too rare)
                return run
        return BlockRun(keep, KERNELS[0])

    def _try(self, inputs: BlockInputs, keep: bool) -> List[LoopChoice]:
        """The loops that agree with the fast one on a block, the fastest first."""
        device, candidates_by_name = inputs.x_TBD.device, self._candidates()
        candidates = {
            LoopChoice(name, kernel): partial(passes, loop, inputs.with_kernel(kernel), keep)
            for name, loop in candidates_by_name.items()
            if loop.why_not(inputs) is None
            for kernel in loop.trial_kernels(device)
        }
        title = f"step loop auto, {'training' if keep else 'evaluation'}, per block"
        exact = None
        if inputs.dtype.itemsize < torch.float32.itemsize:
            wide = in_fp32(inputs)._replace(dtype=torch.float32).with_kernel(KERNELS[0])
            exact = partial(passes, candidates_by_name[FALLBACK], wide, keep)
        return ranking(title, candidates, device, inputs.dtype, exact)

    def new_stepper(self, asked: bool = True) -> Stepper:
        """See ``StepLoop.new_stepper``."""
        return AutomaticStepper(self._loops)

    def details(self) -> str:
        """See ``StepLoop.details``: what it takes here."""
        cpu, text = torch.device("cpu"), FALLBACK
        for loop in self._candidates().values():
            if loop.taken_untried(cpu):
                problem = loop.problem(cpu)
                text = f"{FALLBACK}; {problem}" if problem else f"{loop.name} {taken_on(loop)}, otherwise {FALLBACK}"
        if torch.cuda.is_available():
            tried = [n for n, loop in self._candidates().items() if loop.trial_kernels(torch.device("cuda"))]
            text += f"; on a GPU the fastest of {' and '.join(tried)} that agrees"
        return text


def taken_on(loop: StepLoop) -> str:
    """Where a loop that is taken untried runs, and with what."""
    details = loop.details()
    return f"on a CPU in fp32{f' ({details})' if details else ''}"


def passes(loop: BlockLoop, inputs: BlockInputs, keep: bool) -> Callable[[], list]:
    """What computes a block's results and gradients with a loop, for a gradient of the outputs that is made up."""
    run = loop.trial_run(inputs, keep)
    d_out_TBD = torch.arange(inputs.x_TBD.numel(), device=inputs.x_TBD.device).cos().view(inputs.x_TBD.shape)
    d_out_TBD = d_out_TBD.to(inputs.x_TBD.dtype)

    def both() -> list:
        groups = [[run.forward(inputs)]]
        if keep:
            groups.append([run.backward(d_out_TBD)])
            run.forget()
        return groups

    return both


def setting(inputs: BlockInputs, keep: bool) -> Tuple:
    """What a choice depends on. It holds for blocks of other lengths and numbers of streams too."""
    s = block_sizes(inputs)
    kinds = [mask is not None for mask in inputs.dropouts] + [bool(inputs.encoder), inputs.reach_TB is not None]
    options = inputs.options._replace(kernel=KERNELS[0], span=0)  # adaptive spans grow in training
    return (keep, s.D, s.L, s.E, s.F, s.K, s.I, options, inputs.dtype, inputs.x_TBD.dtype, *kinds, *modes_of_products())
