"""Blocks in single precision, as the C++ loop computes them."""

import torch

from fb_fairseq.ops.feedback.cpp.loop import CppLoop
from tests.ops.feedback.cases import Case

feedback_block_cpp = CppLoop().run_block


def single(seed, **changes) -> Case:
    return Case(seed, dtype=torch.float32, **changes)
