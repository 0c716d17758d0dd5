"""Where CUDA graphs can be captured, and whether they still are."""

import weakref
from typing import Any

import torch

from fb_fairseq.ops.log import first_line, log_once

# Types of devices on which Triton's kernels run, and those with CUDA graphs. (Tests put a CPU in their place.)
KERNEL_DEVICES = GRAPH_DEVICES = ("cuda",)

_capturing_failed = False
# Objects that keep graphs: ``clear()`` frees them, those of decoding steps only where the calling thread has made them
# (others stay as long as their threads). No graph is used after a capture has failed.
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
    if device.type not in GRAPH_DEVICES:
        log_once("CUDA graphs need a GPU; blocks and steps run without")
        return False
    return not _capturing_failed
