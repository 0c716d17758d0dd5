"""Which step loop runs: the plain one or the fast one, operation by operation or as CUDA graphs.

What runs, and why, is logged once."""

import functools
import logging
from typing import Callable

from fb_fairseq.ops.feedback.fast import feedback_block_fast
from fb_fairseq.ops.feedback.graph import feedback_block_graph
from fb_fairseq.ops.feedback.reference import feedback_block

logger = logging.getLogger(__name__)

STEP_LOOPS = ("auto", "reference", "fast", "graph")
KERNELS = ("torch", "triton")
HELP = {
    "step_loop": "reference: the plain loop; fast: one hand-written backward pass a block; graph: the same as CUDA graphs, "
    "where a block's shapes come again (not yet measured on a GPU); auto: fast",
    "step_loop_kernel": "attention of the fast loop and graphs: torch's products, or a Triton kernel each way (on a GPU)",
    "step_loop_recompute": "keep no activations of a block, compute them again in the backward pass: less memory, more time",
}


def step_loop(kind: str) -> Callable:
    """``feedback_reference.feedback_block``, or what computes the same.

    Args:
        kind: one of ``STEP_LOOPS``.
    """
    reason = "the default" if kind == "auto" else "asked for by --step-loop"
    kind = "fast" if kind == "auto" else kind
    return chosen(kind, reason)


@functools.lru_cache(maxsize=None)
def chosen(kind: str, reason: str) -> Callable:
    logger.info(f"step loop: {kind} ({reason})")
    return {"reference": feedback_block, "fast": feedback_block_fast, "graph": feedback_block_graph}[kind]
