"""Blocks in single precision, as the native loop computes them."""

import torch

from fb_fairseq.ops.feedback.native.loop import NativeLoop
from tests.ops.feedback.cases import Case

feedback_block_native = NativeLoop().run_block


def single(seed, **changes) -> Case:
    return Case(seed, dtype=torch.float32, **changes)
