"""The tasks of Table 5: the interface of models that train and infer with any batch size, and the papers' figures."""

import argparse
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from fb_fairseq.papers.benchmark.work import Work
from fb_fairseq.papers.values import load

TRANSFORMER, SHARED, PER_LAYER = "Transformer", "Feedback, shared", "Feedback, per-layer"
PHASES = ("training", "inference")  # methods of ``Task``


def papers_speed(key: str, phase: str, kind: str) -> float | None:
    """The speed that the papers report, in words or frames per second.

    Args:
        key: of the task: lm, translation or rl.
        phase: one of ``PHASES``.
        kind: of the model.

    Returns:
        The speed; None if it is not reported.
    """
    rows = next(table["rows"] for table in load("results") if table["table"] == "v3 Table 5")
    return next((row.get(f"{key}_{phase}") for row in rows if row["name"] == kind), None)


class Task(ABC):
    """A task, with models of random parameters.

    Args:
        sizes: such as ``full``; the task says what they are. Each has ``batch``, the number of streams, sentences or
            environments that all models are compared with.
        device: cpu or cuda.

    Attributes:
        name: in the table.
        kinds: the models: ``TRANSFORMER`` first, then ``SHARED``, and perhaps ``PER_LAYER``.
        full: the papers' sizes, by name, as far as the papers say them: the corpora, the layers of translation and, in
            v3 Tables 8 and 9, the models. The batches are ours.
        small: sizes for one CPU core.
    """

    name: str
    kinds: tuple[str, ...] = (TRANSFORMER, SHARED, PER_LAYER)
    full: dict[str, Any]
    small: dict[str, Any]

    def __init__(self, sizes: Mapping[str, Any], device: str):
        self.sizes = argparse.Namespace(**sizes)
        self.device = device

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
