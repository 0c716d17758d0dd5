"""A GPU that is not there: torch's FakeTensorMode makes tensors on "cuda" with shapes and types, but without values.

It runs on a machine without a GPU, with a CUDA build of torch on Linux x86-64. Operations on tensors of different
devices fail, as on a real GPU, and so does all that needs a value: ``.item()``, ``bool(x)``, ``nonzero``. It does not
see values, the order of streams, or what happens inside kernels.
"""

import contextlib
import ctypes
import functools
import os
import platform
import subprocess
from collections.abc import Iterator
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

# What autograd's engine asks first; without a device it throws.
HAS_CONTEXT = "18_hasPrimaryContextEa"
RETURN_FALSE = b"\x31\xc0\xc3"  # xor eax, eax; ret


def reason_not_to_run() -> str | None:
    """Why there can be no fake GPU on this machine; None: there can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "the fake GPU needs Linux on x86-64"
    if torch.version.cuda is None or not os.path.exists(cuda_library()):
        return "the fake GPU needs a CUDA build of torch"
    if torch.cuda.is_available():
        return "there is a real GPU"
    return None if offset_of(HAS_CONTEXT) else "torch's library has no symbol table"


def cuda_library() -> str:
    """The path of torch's CUDA library."""
    return os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cuda.so")


@functools.cache
def offset_of(symbol: str) -> int | None:
    """Where a function lies in the library."""
    try:
        lines = subprocess.run(["nm", cuda_library()], capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    found = [line.split()[0] for line in lines if symbol in line and not line.endswith(".cold")]
    return int(found[0], 16) if found else None


def let_autograd_run_without_a_device() -> None:
    """Change the function in this process's memory, so that it says that no device has a context."""
    with open("/proc/self/maps") as maps:
        line = next(line for line in maps if line.rstrip().endswith("libtorch_cuda.so"))
    base = int(line.split("-")[0], 16) - int(line.split()[2], 16)
    address, libc = base + offset_of(HAS_CONTEXT), ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(address & ~0xFFF), 0x2000, 7) == 0
    ctypes.memmove(address, RETURN_FALSE, len(RETURN_FALSE))


class Watch(TorchDispatchMode):
    """Notes what a CUDA graph does not allow.

    Attributes:
        problems: operations on tensors of several devices, and random draws.
    """

    def __init__(self):
        super().__init__()
        self.problems = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation._schema.name.split("::")[1]
        result = operation(*args, **(kwargs or {}))
        tensors = [x for x in pytree.tree_flatten((args, kwargs, result))[0] if torch.is_tensor(x)]
        if len({x.device.type for x in tensors}) > 1:
            self.problems.append(f"{name} crosses devices")
        if torch.Tag.nondeterministic_seeded in operation.tags:
            self.problems.append(f"{name} draws random numbers")
        return result


class Capture:
    """In place of ``fb_fairseq.ops.cuda_graph.CudaGraph``: runs the function, and refuses what a capture refuses.

    Attributes:
        made: how many were made.
    """

    made = 0

    def __init__(self, function, before=None):
        with Watch() as watch:
            self.result = function()
        assert not watch.problems, watch.problems[:5]
        Capture.made += 1

    def replay(self):
        """Nothing: there are no values."""


@contextlib.contextmanager
def fake_gpu() -> Iterator[None]:
    """Context in which ``torch.device("cuda")`` works."""
    let_autograd_run_without_a_device()
    pretended = dict(is_bf16_supported=lambda *a, **k: True, synchronize=lambda *a: None, empty_cache=lambda: None)
    with contextlib.ExitStack() as stack:
        for name, value in pretended.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(mock.patch.object(torch.cuda, "device", lambda device: contextlib.nullcontext()))
        amp = torch.cuda.amp.common
        stack.enter_context(mock.patch.object(amp, "amp_definitely_not_available", lambda: False))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=False))
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        yield
