"""Blocks in single precision, as the C++ loop computes them."""

from functools import partial

import torch

from fb_fairseq.ops.feedback.loops import run_block
from tests.ops.feedback.cases import Case

feedback_block_cpp = partial(run_block, "cpp")


def single(seed, **changes) -> Case:
    return Case(seed, dtype=torch.float32, **changes)
