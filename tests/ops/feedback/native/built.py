"""Tests of the native loop need a compiler."""

import pytest

from fb_fairseq.ops.feedback.native.build import BuildError, build

try:
    build()
    reason = ""
except BuildError as error:
    reason = str(error)

needs_native_loop = pytest.mark.skipif(bool(reason), reason=f"the native loop cannot be built here: {reason}")
