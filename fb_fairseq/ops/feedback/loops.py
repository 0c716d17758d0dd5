"""All step loops, by the names of ``--step-loop``. To add one, write a ``StepLoop`` in a folder of its own and name it
here: options, help, ``auto``, the benchmarks, ``python -m fb_fairseq env`` and the docs read this table.
"""

import functools
import logging
from typing import Dict

from fb_fairseq.ops.feedback.automatic import AutomaticLoop
from fb_fairseq.ops.feedback.fast.loop import FastLoop
from fb_fairseq.ops.feedback.fused.loop import FusedLoop
from fb_fairseq.ops.feedback.native.loop import NativeLoop
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.feedback.step_loop import REFERENCE, StepLoop

logger = logging.getLogger(__name__)


class ReferenceLoop(StepLoop):
    """The equations, under autograd."""

    name = REFERENCE
    summary = "the equations step by step, with autograd, to check the others"
    runs = "everywhere"
    run_block = staticmethod(feedback_block)


def all_loops() -> Dict[str, StepLoop]:
    """``LOOPS``."""
    return LOOPS


LOOPS: Dict[str, StepLoop] = {
    loop.name: loop
    for loop in (
        AutomaticLoop(all_loops),
        ReferenceLoop(),
        FastLoop(),
        FusedLoop(),
        NativeLoop(),
    )
}


@functools.lru_cache(maxsize=None)
def step_loop(name: str) -> StepLoop:
    """The step loop of a name. Logged at the first call."""
    logger.info(f"step loop: {name} ({LOOPS[name].reason})")
    return LOOPS[name]
