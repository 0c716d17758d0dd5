"""The tasks that models are compared on, and their sequences as tensors.

They are tasks of ``synthetic_tasks``, in which one size makes sequences harder: the number of elements, of keys, or of
symbols. Models are trained on sizes up to ``longest`` and tested beyond.
"""

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch
from torch import Tensor

from fb_fairseq.papers.toy_tasks.arithmetic import OPERATORS
from fb_fairseq.papers.toy_tasks.groups import named
from fb_fairseq.papers.toy_tasks.seeded_random import SeededRandom
from fb_fairseq.papers.toy_tasks.sequence import NO_LABEL
from fb_fairseq.papers.toy_tasks.tasks import TASKS

NONE = -100  # label of a step without one, as torch's cross entropy takes it


@dataclass(frozen=True)
class Problem:
    """A task whose sequences grow.

    Attributes:
        size: the option of the task that grows.
        smallest: its value at the start of training.
        steps: number of steps in a sequence of a size.
        options: the task's other options for a size, given those of the command line.
        symbols: all inputs, given the task's options.
        labels: all labels.
        by_position: whether every step has a label, so that sequences of one size show the accuracy at all smaller
            ones.
    """

    size: str
    smallest: int
    steps: Callable[[int], int]
    options: Callable[[int, Dict[str, Any]], Dict[str, Any]]
    symbols: Callable[[Dict[str, Any]], Sequence[str]]
    labels: Callable[[Dict[str, Any]], Sequence[str]]
    by_position: bool = False


def _numbers(end: int, start: int = 0) -> List[str]:
    return list(map(str, range(start, end)))


PROBLEMS = {
    "word_problem": Problem(
        size="length",
        smallest=2,
        steps=lambda size: size,
        options=lambda size, given: dict(length=size, group=given["group"]),
        symbols=lambda given: named(given["group"]).elements,
        labels=lambda given: named(given["group"]).elements,
        by_position=True,
    ),
    "recall": Problem(
        size="pairs",
        smallest=2,
        steps=lambda size: 4 * size,
        options=lambda size, given: dict(pairs=size, length=4 * size, symbols=given["symbols"]),
        symbols=lambda given: _numbers(given["symbols"]),
        labels=lambda given: _numbers(given["symbols"], given["symbols"] // 2),
    ),
    "modular_arithmetic": Problem(
        size="length",
        smallest=4,
        steps=lambda size: size,
        options=lambda size, given: dict(length=size),
        symbols=lambda given: [*_numbers(5), *OPERATORS, "(", ")", "="],
        labels=lambda given: _numbers(5),
    ),
}


class Sequences:
    """The sequences of a task, drawn from a seed: the same for all models.

    Args:
        task: one of ``PROBLEMS``.
        given: the options ``group`` and ``symbols``, where the task has them.
    """

    def __init__(self, task: str, given: Dict[str, Any], seed: int):
        self.task, self.given, self.seed = task, given, seed
        self.problem = PROBLEMS[task]
        self._symbols = {name: i for i, name in enumerate(self.problem.symbols(given))}
        self._labels = {name: i for i, name in enumerate(self.problem.labels(given))}
        self._labels[NO_LABEL] = NONE

    @property
    def symbols(self) -> int:
        """Number of different inputs."""
        return len(self._symbols)

    @property
    def classes(self) -> int:
        """Number of different labels."""
        return len(self._labels) - 1

    def draw(self, split: str, number: int, size: int, sequences: int) -> Tuple[Tensor, Tensor]:
        """Inputs and labels, [B, L] each; ``NONE`` where there is no label.

        Args:
            split: "train", "valid" or "test"; each has its own random numbers.
            number: of the batch.
            size: of the sequences.
            sequences: B.
        """
        rng = SeededRandom(self.seed, self.task, split, number)
        options = self.problem.options(size, self.given)
        drawn = [TASKS[self.task].generate(rng, **options) for _ in range(sequences)]
        inputs = [[self._symbols[name] for name in sequence.inputs] for sequence in drawn]
        labels = [[self._labels[name] for name in sequence.labels] for sequence in drawn]
        return torch.tensor(inputs), torch.tensor(labels)
