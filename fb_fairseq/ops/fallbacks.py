"""Fallbacks when CUDA graphs or Triton are unavailable. Each is logged once."""

import functools
import logging
import weakref
from typing import Any

import torch

logger = logging.getLogger(__name__)

KERNEL_DEVICES = GRAPH_DEVICES = ("cuda",)


@functools.cache
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


def can_capture(device: torch.device) -> bool:
    """Whether CUDA graphs are available on a device."""
    if _capturing_failed:
        return False
    if device.type not in GRAPH_DEVICES:
        log_once("CUDA graphs need a GPU; blocks and steps run without")
    return device.type in GRAPH_DEVICES
