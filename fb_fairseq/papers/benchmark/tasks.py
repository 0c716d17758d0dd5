"""What the tasks of Table 5 have in common: models that train and infer with a batch of any size. And the papers'
figures."""

import argparse
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from fb_fairseq.papers.benchmark.measure import Work

TRANSFORMER, SHARED, PER_LAYER = "Transformer", "Feedback, shared", "Feedback, per-layer"
PHASES = ("training", "inference")
# Words or frames per second, by task and phase.
PAPERS: dict[tuple[str, str], dict[str, float]] = {
    ("lm", "training"): {TRANSFORMER: 296e3, SHARED: 84.4e3},
    ("lm", "inference"): {TRANSFORMER: 592, SHARED: 2176},
    ("translation", "training"): {TRANSFORMER: 280e3, SHARED: 126e3},
    ("translation", "inference"): {TRANSFORMER: 3190, SHARED: 5410},
    ("rl", "training"): {TRANSFORMER: 22.3e3, SHARED: 22.3e3},
}


class Task(ABC):
    """A task, with models of random parameters.

    Args:
        sizes: ``FULL``, ``SMALL``, or others of these names.
        device: cpu or cuda.

    Attributes:
        name: in the table.
        kinds: the models: some of ``TRANSFORMER``, ``SHARED`` and ``PER_LAYER``.
        FULL: the papers' sizes. They name the corpora, the layers of translation and, in v3 Tables 8 and 9, the models;
            batches are ours. ``batch``: streams, sentences or environments.
        SMALL: sizes for a CPU.
    """

    name: str
    kinds: tuple[str, ...] = (TRANSFORMER, SHARED, PER_LAYER)
    FULL: Mapping[str, Any]
    SMALL: Mapping[str, Any]

    def __init__(self, sizes: Mapping[str, Any], device: str):
        self.sizes, self.device = argparse.Namespace(**sizes), device

    @abstractmethod
    def training(self, kind: str, batch: int) -> Work:
        """Build a model, and return its training."""

    @abstractmethod
    def inference(self, kind: str, batch: int) -> Work:
        """Build a model, and return its inference."""

    def state_bytes(self, kind: str) -> int:
        """Run inference, and return the bytes that it keeps of the past of one stream: keys and values."""
        work = self.inference(kind, 1)
        work.prepare()
        work.run()
        return work.state()

    def work(self, phase: str, kind: str, batch: int) -> Work:
        """The work of one of ``PHASES``."""
        return (self.training if phase == "training" else self.inference)(kind, batch)
