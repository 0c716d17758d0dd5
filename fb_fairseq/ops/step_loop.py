"""Which step loop runs: the plain one or the fast one, which ``auto`` takes. What it takes, and why, is logged once."""

import functools
import logging
from typing import Callable

from fb_fairseq.ops.feedback_fast import feedback_block_fast
from fb_fairseq.ops.feedback_reference import feedback_block

logger = logging.getLogger(__name__)

STEP_LOOPS = ("auto", "reference", "fast")
STEP_LOOP_HELP = "auto: the fastest; reference: the plain loop; fast: one hand-written backward pass a block"
RECOMPUTE_HELP = "keep no activations of a block, compute them again in the backward pass: less memory, more time"


def step_loop(kind: str) -> Callable:
    """``feedback_reference.feedback_block``, or what computes the same.

    Args:
        kind: one of ``STEP_LOOPS``.
    """
    if kind == "reference":
        return chosen(kind, "asked for by --step-loop", feedback_block)
    return chosen("fast", "asked for by --step-loop" if kind == "fast" else "the fastest on this device", feedback_block_fast)


@functools.lru_cache(maxsize=None)
def chosen(name: str, reason: str, loop: Callable) -> Callable:
    logger.info(f"step loop: {name} ({reason})")
    return loop
