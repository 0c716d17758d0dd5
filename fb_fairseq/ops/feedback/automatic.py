"""``--step-loop auto``: on a CPU the native loop where it is available; on a GPU the fastest loop that agrees with the
fast one.

On a GPU the first blocks run operation by operation. Then every loop that could run is tried on a block, with the
gradients of a made-up loss; see ``fb_fairseq.ops.trials``.
"""

from collections import Counter
from functools import partial
from typing import Callable, List, Tuple

import torch

from fb_fairseq.ops import fallbacks
from fb_fairseq.ops.cuda_graph import modes_of_products
from fb_fairseq.ops.feedback.block import BlockInputs, block_sizes
from fb_fairseq.ops.feedback.fast import BlockRun, feedback_block_fast
from fb_fairseq.ops.feedback.graph import GRAPHS, GraphRun, Graphs
from fb_fairseq.ops.feedback.native.loop import choose_run as choose_native_run
from fb_fairseq.ops.trials import Choices, ranking

TRY_AT = 10  # number of the block on which loops are tried
SEPARATOR = "+"  # between a loop and its kernel, as in graph+triton


class FastestLoop:
    """Chooses what runs each block on a GPU.

    Args:
        graphs: the captured blocks.

    Attributes:
        rankings: for each setting the loops that agree with the fast one, the fastest first, with commas between.
    """

    def __init__(self, graphs: Graphs):
        self.graphs = graphs
        self.blocks: Counter = Counter()  # since the last attempt
        self.rankings = Choices("step loop", otherwise="fast")

    def choose(self, inputs: BlockInputs, keep: bool) -> BlockRun:
        """What runs a block: the fast loop until the loops have been tried."""
        key = setting(inputs, keep)
        if key not in self.rankings:
            self.blocks[key] += 1
            if self.blocks[key] < TRY_AT:
                return BlockRun(keep, "torch")
            self.blocks[key] = 0
        ranked = self.rankings.find(key, lambda: ",".join(self._try(inputs, keep)))
        if ranked is None:
            return BlockRun(keep, "torch")
        loops = [loop_and_kernel(name) for name in ranked.split(",")]
        loop, kernel = loops[0]
        if loop == "graph":
            run = self.graphs.choose(inputs.with_kernel(kernel), keep)
            if isinstance(run, GraphRun):
                return run
        # This block's shapes are too rare for a graph.
        return BlockRun(keep, next(kernel for loop, kernel in loops if loop == "fast"))

    def _try(self, inputs: BlockInputs, keep: bool) -> List[str]:
        """The loops that agree with the fast one on a block, the fastest first."""
        device = inputs.x_TBD.device
        kernels = ["torch", *(["triton"] if fallbacks.have_kernels(device) else [])]
        loops = ["fast", *(["graph"] if fallbacks.can_capture(device) else [])]
        candidates = {
            SEPARATOR.join([loop, kernel][: 1 + (kernel != "torch")]): partial(
                passes, loop, inputs.with_kernel(kernel), keep
            )
            for loop in loops
            for kernel in kernels
        }
        title = f"step loop auto, {'training' if keep else 'evaluation'}, per block"
        return ranking(title, candidates, device, inputs.dtype)


def loop_and_kernel(name: str) -> Tuple[str, str]:
    """A loop and its kernel: ``graph+triton`` is graph and triton, ``graph`` is graph and torch."""
    loop, _, kernel = name.partition(SEPARATOR)
    return loop, kernel or "torch"


def passes(loop: str, inputs: BlockInputs, keep: bool) -> Callable[[], list]:
    """What computes a block's results and gradients with a loop, for a gradient of the outputs that is made up."""
    if loop == "graph":
        with fallbacks.trying_to_capture(inputs.x_TBD.device):
            run = GraphRun(inputs, keep)
    else:
        run = BlockRun(keep)
    d_out_TBD = torch.arange(inputs.x_TBD.numel(), device=inputs.x_TBD.device).cos().view(inputs.x_TBD.shape)
    d_out_TBD = d_out_TBD.to(inputs.x_TBD.dtype)

    def both() -> list:
        groups = [[run.forward(inputs)]]
        if keep:
            groups.append([run.backward(d_out_TBD)])
            if loop == "fast":
                run.block = run.record = None  # as after a backward pass; the next run makes its own
        return groups

    return both


def setting(inputs: BlockInputs, keep: bool) -> Tuple:
    """What a choice depends on. It holds for blocks of other lengths and numbers of streams too."""
    s = block_sizes(inputs)
    kinds = [mask is not None for mask in inputs.dropouts] + [bool(inputs.encoder), inputs.reach_TB is not None]
    options = inputs.options._replace(kernel="torch", span=0)  # adaptive spans grow in training
    return (keep, s.D, s.L, s.E, s.F, s.K, s.I, options, inputs.dtype, inputs.x_TBD.dtype, *kinds, *modes_of_products())


FASTEST_LOOP = FastestLoop(GRAPHS)


def choose_run(inputs: BlockInputs, keep: bool) -> BlockRun:
    """What runs a block."""
    if inputs.x_TBD.device.type in fallbacks.GRAPH_DEVICES:
        return FASTEST_LOOP.choose(inputs, keep)
    return choose_native_run(inputs, keep, asked=False)


feedback_block_auto = partial(feedback_block_fast, choose_run=choose_run)
