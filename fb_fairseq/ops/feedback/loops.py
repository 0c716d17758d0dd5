"""All step loops, by the names of ``--step-loop``, and the one that runs a block.

To add a loop, write a ``Loop`` (``loop.py``) and enter it in ``LOOPS``: options, help, the benchmarks, ``python -m
fb_fairseq env`` and the docs read this table.
"""

import functools
import logging

import torch

from fb_fairseq.ops.feedback.autograd import run_block_with
from fb_fairseq.ops.feedback.cpp.loop import CppLoop
from fb_fairseq.ops.feedback.cuda_graphs.blocks import BlockGraphs
from fb_fairseq.ops.feedback.loop import Loop
from fb_fairseq.ops.feedback.passes import Passes, ReferencePasses, passes_of
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.feedback.triton.loop import TritonLoop
from fb_fairseq.ops.feedback.types import BlockInputs, BlockResults
from fb_fairseq.ops.log import log_once

logger = logging.getLogger(__name__)


class ReferenceLoop(Loop):
    """Runs everywhere, operation by operation under autograd; and where another loop does not run."""

    name = "reference"
    summary = "the equations step by step, under autograd"
    runs = "everywhere"

    passes_class = ReferencePasses


LOOPS: dict[str, Loop] = {loop.name: loop for loop in (ReferenceLoop(), CppLoop(), TritonLoop())}
REFERENCE = ReferenceLoop.name  # runs where others do not
AUTO = "auto"
PREFERRED = {"cpu": "cpp", "cuda": "triton"}  # what auto takes, by type of device
# Names in checkpoints and exported configurations of earlier versions.
OLD_NAMES = {
    "parallel": AUTO,
    "torch": REFERENCE,
    "fast": REFERENCE,
    "native": "cpp",
    "fused": "triton",
    "graph": "triton",
}

GRAPHS = BlockGraphs(LOOPS[REFERENCE])


AUTO_SUMMARY = "cpp on a CPU where it can be compiled, triton on a GPU, reference elsewhere"
# The values of ``--step-loop``: what each is, and where it runs.
CHOICES = {AUTO: (AUTO_SUMMARY, "everywhere"), **{name: (loop.summary, loop.runs) for name, loop in LOOPS.items()}}


def loop_on(name: str, device: torch.device) -> Loop:
    """The loop that a name stands for on a device: where it does not run, the reference."""
    loop = LOOPS[PREFERRED.get(device.type, REFERENCE) if name == AUTO else name]
    problem = loop.unavailable(device)
    if problem is None:
        return loop
    if name not in (AUTO, REFERENCE):
        log_once(f"--step-loop {name}: {problem}; the reference runs")
    return LOOPS[REFERENCE]


def passes_for(name: str, inputs: BlockInputs, needs_backward: bool) -> Passes:
    """The passes that run a block: of the loop, or of the reference where it does not cover the block."""
    loop = loop_on(name, inputs.x_TBD.device)
    if loop.as_graphs:
        return GRAPHS.passes_for(loop, inputs, needs_backward)
    problem = loop.unsupported(inputs)
    if problem is not None and name != AUTO:
        log_once(f"--step-loop {name}: {problem}; the reference runs")
    return passes_of(loop if problem is None else LOOPS[REFERENCE], needs_backward)


@functools.cache
def log_choice(name: str) -> None:
    """Log the value of ``--step-loop``, at its first call."""
    logger.info(f"step loop: {name} ({AUTO_SUMMARY if name == AUTO else 'asked for by --step-loop'})")


def run_block(name: str, inputs: BlockInputs) -> BlockResults:
    """Run a block of T steps by the loop of a name."""
    if name == REFERENCE:  # (not in one node of autograd: adapters are called, whose parameters learn)
        return feedback_block(inputs)
    return run_block_with(functools.partial(passes_for, name), inputs)
