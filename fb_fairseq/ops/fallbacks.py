"""Fallbacks when CUDA graphs or Triton are unavailable. Each is logged once."""

import functools
import importlib.util
import logging
from types import ModuleType
from typing import Optional

import torch

logger = logging.getLogger(__name__)

KERNEL_DEVICES = GRAPH_DEVICES = ("cuda",)


@functools.lru_cache(maxsize=None)
def log_once(text: str) -> None:
    """Log a warning, the first time only."""
    logger.warning(text)


_capturing_failed = False


def disable_capturing(error: Exception) -> None:
    """Run without graphs from now on, after a capture has failed: torch may not have cleaned up after it."""
    global _capturing_failed
    _capturing_failed = True
    log_once(f"--step-loop graph: capturing failed; from now on steps run operation by operation: {error}")


def can_capture(device: torch.device) -> bool:
    """Whether CUDA graphs are available on a device."""
    if _capturing_failed:
        return False
    if device.type not in GRAPH_DEVICES:
        log_once("--step-loop graph: CUDA graphs need a GPU; steps run operation by operation")
    return device.type in GRAPH_DEVICES


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
    from fb_fairseq.ops import triton_attention

    return triton_attention
