"""The C++ loop, tests of which need a compiler, and blocks in single precision, as it computes them."""

from functools import partial

import pytest
import torch

from fb_fairseq.ops.feedback.cpp.library import BuildError, build
from fb_fairseq.ops.feedback.loops import run_block
from tests.ops.feedback.cases import Case

try:
    build()
    reason = ""
except BuildError as error:
    reason = str(error)

needs_cpp_loop = pytest.mark.skipif(bool(reason), reason=f"the C++ loop cannot be built here: {reason}")
feedback_block_cpp = partial(run_block, "cpp")
single = partial(Case, dtype=torch.float32)
