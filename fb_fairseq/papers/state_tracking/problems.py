"""The tasks that models are compared on, and their sequences as tensors. They are the toy tasks with a ``growth``: one
size makes sequences harder, such as the number of elements or of keys. Models are trained on sizes up to ``longest``
and tested beyond.
"""

from typing import Any

import torch
from torch import Tensor

from fb_fairseq.papers.toy_tasks import load, names
from fb_fairseq.papers.toy_tasks.common import NO_LABEL, SeededRandom

NO_TARGET = -100  # label of a step without one, as torch's cross entropy takes it
TASKS = {name: load(name).TASK for name in names()}
GROWTHS = {name: task.growth for name, task in TASKS.items() if task.growth}


class Sequences:
    """The sequences of a task, drawn from a seed: the same for all models. ``given`` are the options of all tasks."""

    def __init__(self, task: str, given: dict[str, Any], seed: int):
        self.task, self.seed = task, seed
        self.given = {name: value for name, value in given.items() if name in TASKS[task].options}
        self.growth = GROWTHS[task]
        self._symbols = {name: i for i, name in enumerate(self.growth.symbols(given))}
        self._labels = {name: i for i, name in enumerate(self.growth.labels(given))}
        self._labels[NO_LABEL] = NO_TARGET

    @property
    def symbols(self) -> int:
        """Number of different inputs."""
        return len(self._symbols)

    @property
    def classes(self) -> int:
        """Number of different labels."""
        return len(self._labels) - 1

    def draw(self, split: str, number: int, size: int, sequences: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels of B ``sequences`` of a size, [B, L] each; ``NO_TARGET`` where there is no label.

        Each split and each number of a batch has its own random numbers.

        Args:
            split: train, valid or test.
            number: of the batch.
            size: of the sequences, as the task measures it.
            sequences: B.
        """
        rng = SeededRandom(self.seed, self.task, split, number)
        options = {**self.given, self.growth.size: size, "length": self.growth.steps(size)}
        drawn = [TASKS[self.task].generate(rng, **options) for _ in range(sequences)]
        inputs = [[self._symbols[name] for name in sequence.inputs] for sequence in drawn]
        labels = [[self._labels[name] for name in sequence.labels] for sequence in drawn]
        return torch.tensor(inputs), torch.tensor(labels)
