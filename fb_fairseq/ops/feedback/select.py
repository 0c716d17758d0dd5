"""Which step loop runs: the reference; or the fast one, operation by operation, as CUDA graphs, or in C++."""

import functools
import logging
from typing import Callable

from fb_fairseq.ops.feedback.automatic import feedback_block_auto
from fb_fairseq.ops.feedback.fast import feedback_block_fast
from fb_fairseq.ops.feedback.graph import feedback_block_graph
from fb_fairseq.ops.feedback.native.loop import feedback_block_native
from fb_fairseq.ops.feedback.reference import feedback_block

logger = logging.getLogger(__name__)

STEP_LOOPS = ("auto", "reference", "fast", "graph", "native")
KERNELS = ("torch", "triton")
WITH_KERNELS = ("fast", "graph")  # loops that take either kernel

REASONS = {
    "auto": "native on a CPU in fp32 where it can be compiled, otherwise fast; "
    "on a GPU the loops are tried after some blocks"
}


@functools.lru_cache(maxsize=None)
def step_loop(kind: str) -> Callable:
    """``fb_fairseq.ops.feedback.reference.feedback_block``, or a loop that computes the same.

    Args:
        kind: one of ``STEP_LOOPS``. Logged at the first call.
    """
    logger.info(f"step loop: {kind} ({REASONS.get(kind, 'asked for by --step-loop')})")
    return {
        "auto": feedback_block_auto,
        "reference": feedback_block,
        "fast": feedback_block_fast,
        "graph": feedback_block_graph,
        "native": feedback_block_native,
    }[kind]
