"""Fallbacks when CUDA graphs or Triton are unavailable. Each is logged once."""

import functools
import importlib.util
import logging
import weakref
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Iterator, Optional

import torch

from fb_fairseq.ops.cuda_graph import CaptureError

logger = logging.getLogger(__name__)

KERNEL_DEVICES = GRAPH_DEVICES = ("cuda",)


@functools.lru_cache(maxsize=None)
def log_once(text: str) -> None:
    """Log a warning, the first time only."""
    logger.warning(text)


def first_line(error: BaseException) -> str:
    """An error in one line."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


_capturing_failed = False
# Objects that keep graphs: ``clear()`` frees them. No graph is used after a capture has failed.
owners_of_graphs: "weakref.WeakSet[Any]" = weakref.WeakSet()


def disable_capturing(error: Exception) -> None:
    """Run without graphs from now on, after a capture has failed: torch may not have cleaned up after it."""
    global _capturing_failed
    _capturing_failed = True
    log_once(f"CUDA graphs: capturing failed; from now on steps run operation by operation: {first_line(error)}")
    for owner in list(owners_of_graphs):
        owner.clear()


@contextmanager
def trying_to_capture(device: torch.device) -> Iterator[None]:
    """Context of a capture that may fail: if it does, no other is tried.

    Raises:
        CaptureError: capturing has failed, now or before.
    """
    if not can_capture(device):
        raise CaptureError("capturing has failed before")
    try:
        yield
    except CaptureError as error:
        disable_capturing(error)
        raise


def can_capture(device: torch.device) -> bool:
    """Whether CUDA graphs are available on a device."""
    if _capturing_failed:
        return False
    if device.type not in GRAPH_DEVICES:
        log_once("--step-loop graph: CUDA graphs need a GPU; steps run operation by operation")
    return device.type in GRAPH_DEVICES


def have_kernels(device: torch.device) -> bool:
    """Whether Triton's kernels are available on a device."""
    if device.type not in KERNEL_DEVICES or importlib.util.find_spec("triton") is None:
        return False
    return attention_kernels("triton", device) is not None


def attention_kernels(kind: str, device: torch.device) -> Optional[ModuleType]:
    """The module ``triton_attention`` if it is asked for and available; None: use torch's products.

    Args:
        kind: ``torch`` or ``triton``.
    """
    if kind != "triton":
        return None
    if device.type not in KERNEL_DEVICES:
        return log_once("--step-loop-kernel triton: needs a GPU; torch's products are used")
    if importlib.util.find_spec("triton") is None:
        return log_once("--step-loop-kernel triton: Triton is not installed; torch's products are used")
    problem = problem_of_kernels(device.type)
    if problem is not None:
        return log_once(f"--step-loop-kernel triton: {problem}; torch's products are used")
    from fb_fairseq.ops import triton_attention

    return triton_attention


@functools.lru_cache(maxsize=None)
def problem_of_kernels(device: str) -> Optional[str]:
    """Why Triton's kernels cannot be used on a type of device, found by trying them once; None: they can."""
    from fb_fairseq.ops import triton_attention

    try:
        difference = triton_attention.largest_error(torch.device(device))
    except Exception as error:  # Triton's are of many types
        return f"a kernel failed ({type(error).__name__}: {first_line(error)})"
    return None if difference < 1e-4 else f"a kernel's result is wrong by {difference:.1g}"
