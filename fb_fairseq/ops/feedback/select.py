"""Which step loop runs: the reference; or the fast one, operation by operation, as CUDA graphs, or in C++."""

import functools
import logging
from typing import Callable

from fb_fairseq.ops.feedback.fast import feedback_block_fast
from fb_fairseq.ops.feedback.graph import feedback_block_graph
from fb_fairseq.ops.feedback.native.loop import feedback_block_native
from fb_fairseq.ops.feedback.reference import feedback_block

logger = logging.getLogger(__name__)

STEP_LOOPS = ("auto", "reference", "fast", "graph", "native")
KERNELS = ("torch", "triton")


def step_loop(kind: str) -> Callable:
    """``fb_fairseq.ops.feedback.reference.feedback_block``, or a loop that computes the same.

    Args:
        kind: one of ``STEP_LOOPS``. What runs is logged once.
    """
    reason = "the default" if kind == "auto" else "asked for by --step-loop"
    return loop_of("fast" if kind == "auto" else kind, reason)


@functools.lru_cache(maxsize=None)
def loop_of(kind: str, reason: str) -> Callable:
    """The loop of a kind; what runs and why is logged at the first call."""
    logger.info(f"step loop: {kind} ({reason})")
    return {
        "reference": feedback_block,
        "fast": feedback_block_fast,
        "graph": feedback_block_graph,
        "native": feedback_block_native,
    }[kind]
