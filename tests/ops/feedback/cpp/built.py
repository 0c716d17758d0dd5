"""Tests of the C++ loop need a compiler."""

import pytest

from fb_fairseq.ops.feedback.cpp.library import BuildError, build

try:
    build()
    reason = ""
except BuildError as error:
    reason = str(error)

needs_cpp_loop = pytest.mark.skipif(bool(reason), reason=f"the C++ loop cannot be built here: {reason}")
