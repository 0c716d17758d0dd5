"""The work that benchmarks measure, and the device it runs on."""

import gc
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.loops import GRAPHS


class Work(NamedTuple):
    """Training or decoding with one model.

    Attributes:
        prepare: fills the memory; on a GPU also runs until graphs are captured.
        run: what is timed.
        words: number of words, or of an agent's frames, that a run processes.
        model: of a training step: its parameters get gradients.
        forward: of a training step: its forward pass, from which the output comes back.
        state: tells the bytes of the memory: of what is carried into a training step, or of a decoder's.
    """

    prepare: Callable[[], None]
    run: Callable[[], None]
    words: int
    model: torch.nn.Module | None = None
    forward: Callable[[], Tensor] | None = None
    state: Callable[[], int] = int


def repeated(function: Callable[[], object], device: str, times: int = 0) -> Callable[[], None]:
    """A function that makes so many calls; on a GPU at least as many as it takes to capture a graph."""
    if is_gpu(device):
        times = max(times, GRAPHS.capture_at + 1)

    def loop() -> None:
        for _ in range(times):
            function()

    return loop


def is_gpu(device: str) -> bool:
    """Whether a device is a GPU."""
    return device.startswith("cuda")


def synchronize(device: str) -> None:
    """Wait for the work that is left running on a GPU."""
    if is_gpu(device):
        torch.cuda.synchronize(device)


def release(device: str) -> None:
    """Free what models that are gone have left in memory."""
    gc.collect()
    if is_gpu(device):
        torch.cuda.empty_cache()
