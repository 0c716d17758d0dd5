"""All step loops, by the names of ``--step-loop``. To add one, write a ``StepLoop`` in a folder of its own and name it
here: options, help, ``auto``, the benchmarks, ``python -m fb_fairseq env`` and the docs read this table.
"""

import functools
import logging
from typing import Dict

from fb_fairseq.ops.feedback.automatic import AutomaticLoop
from fb_fairseq.ops.feedback.cpp.loop import CppLoop
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.feedback.step_loop import REFERENCE, StepLoop
from fb_fairseq.ops.feedback.torch.loop import TorchLoop
from fb_fairseq.ops.feedback.triton.loop import TritonLoop

logger = logging.getLogger(__name__)

# Names of loops in checkpoints and exported configurations of 0.1.0's development.
OLD_NAMES = {"fast": "torch", "native": "cpp", "fused": "triton", "graph": "triton"}


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
        TorchLoop(),
        TritonLoop(),
        CppLoop(),
    )
}


@functools.lru_cache(maxsize=None)
def step_loop(name: str) -> StepLoop:
    """The step loop of a name. Logged at the first call."""
    logger.info(f"step loop: {name} ({LOOPS[name].reason})")
    return LOOPS[name]
