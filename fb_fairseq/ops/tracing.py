"""Keep the step loops out of ``torch.compile``, ``torch.jit.trace`` and ``torch.export``, which cannot follow their
reused buffers and native calls.
"""

import functools
import sys
from collections.abc import Callable

import torch


def outside_compiler(function: Callable) -> Callable:
    """Decorator: in a compiled model the function runs as it is, between two compiled parts of the model.

    ``torch.compiler.disable`` does that, but takes seconds to import. So it is applied at the first call in a process
    that has imported the compiler already, as ``torch.compile`` and torch's optimizers do; then a call takes two
    microseconds more.
    """

    disabled = functools.cache(lambda: torch.compiler.disable(function))

    @functools.wraps(function)
    def run(*args, **kwargs):
        outside = disabled() if "torch._dynamo" in sys.modules else function
        return outside(*args, **kwargs)

    return run


def is_tracing() -> bool:
    """Whether ``torch.jit.trace`` or, from torch 2.7 on, ``torch.export`` looks on, ``torch.onnx.export`` included."""
    exporting = getattr(torch.compiler, "is_exporting", None)
    return torch.jit.is_tracing() or (exporting is not None and exporting())
