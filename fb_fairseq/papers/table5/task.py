"""What the tasks of Table 5 have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch

from fb_fairseq.papers.benchmark.train import warm_up_blocks
from fb_fairseq.papers.table5.settings import PER_LAYER, SHARED, TRANSFORMER


class Work(NamedTuple):
    """Training or inference with one model and batch."""

    prepare: Callable[[], None]  # fills the memory; on a GPU also runs until graphs are captured
    run: Callable[[], None]  # what is timed
    words: int  # words, or frames, that a run processes


class Task(ABC):
    """A task, with models of random parameters: some of ``TRANSFORMER``, ``SHARED`` and ``PER_LAYER``."""

    name: str
    kinds: tuple[str, ...] = (TRANSFORMER, SHARED, PER_LAYER)

    def __init__(self, sizes, device: str):
        self.sizes, self.device = sizes, device

    @abstractmethod
    def training(self, kind: str, batch: int) -> Work:
        """Build a model, and return its training."""

    @abstractmethod
    def inference(self, kind: str, batch: int) -> Work:
        """Build a model, and return its inference."""

    @abstractmethod
    def state_sizes(self) -> tuple[int, int, int]:
        """What the state of a stream depends on: the steps that are kept, layers, and the model's width."""

    @abstractmethod
    def measured_state_bytes(self, kind: str) -> int:
        """Run inference, and return the bytes that it keeps of the past of one stream: keys and values."""

    def state_bytes(self, kind: str) -> int:
        """The same, calculated: a key and a value per step, of each layer or shared by all."""
        steps, layers, width = self.state_sizes()
        return 2 * steps * width * (1 if kind == SHARED else layers) * torch.finfo(torch.float32).bits // 8

    def work(self, phase: str, kind: str, batch: int) -> Work:
        """The work of one of ``PHASES``."""
        return (self.training if phase == "training" else self.inference)(kind, batch)

    def repeated(self, function: Callable[[], None], times: int) -> Callable[[], None]:
        """A function that makes so many calls; on a GPU as many as it takes to capture a graph."""
        if self.device.startswith("cuda"):
            times = max(times, warm_up_blocks())

        def loop():
            for _ in range(times):
                function()

        return loop
