"""What is trained, and how: the options of ``state-tracking train``."""

import argparse
from dataclasses import dataclass, field, fields
from typing import Any

from fb_fairseq.errors import UserError, flag
from fb_fairseq.papers.state_tracking.architectures import ARCHITECTURES, Shape
from fb_fairseq.papers.state_tracking.problems import PROBLEMS
from fb_fairseq.papers.toy_tasks.word_problem import GROUPS

CURRICULA = ("growing", "mixed")
KNOWN = {"task": PROBLEMS, "group": GROUPS, "model": ARCHITECTURES, "curriculum": CURRICULA}


def option(default: Any, text: str, lowest: int | None = None) -> Any:
    """A field of ``Options``.

    Args:
        default: its default.
        text: its help.
        lowest: its lowest value; without, a whole number may be any, and others have to be above 0.
    """
    return field(default=default, metadata={"help": text, "lowest": lowest})


@dataclass(frozen=True)
class Options:
    """What is trained, and how. The help texts say what each field is."""

    task: str = option("word_problem", ", ".join(PROBLEMS))
    group: str = option("A5", f"of word problems: {', '.join(GROUPS)}")
    symbols: int = option(256, "number of different symbols in recall", 4)
    model: str = option("feedback", ", ".join(ARCHITECTURES))
    memory_composition: str = option("weighted", "of the Feedback Transformer: weighted, average, previous, layer:2, …")
    layers: int = option(2, "number of layers", 1)
    width: int = option(64, "model width", 8)
    heads: int = option(2, "number of heads, where a model has some", 1)
    span: int = option(
        0, "how many steps back attention reaches; 0: in word problems --longest, but 8 for the Feedback Transformer; "
        "in the other tasks all steps of the longest tests", 0,
    )  # fmt: skip
    longest: int = option(
        32, "training sequences have up to so many elements (recall: pairs); tests go to 16 times as many (recall and "
        "arithmetic: 4 times)", 1,
    )  # fmt: skip
    curriculum: str = option(
        "growing", "growing: training sequences get longer as soon as the model is right; mixed: each update has one "
        "size of all up to --longest, drawn at random",
    )  # fmt: skip
    test_sequences: int = option(3000, "sequences of each size in tests", 1)
    updates: int = option(8000, "of training", 1)
    tokens: int = option(2048, "steps in an update", 1)
    lr: float = option(0.002, "learning rate of Adam")
    clip_norm: float = option(1.0, "gradients of a larger norm are scaled down to it")
    seed: int = option(1, "of the parameters and the data")

    def __post_init__(self):
        for name, known in KNOWN.items():
            value = getattr(self, name)
            if value not in known:
                raise UserError(f"{flag(name)} {value}: unknown; choose from {', '.join(known)}")
        for each in fields(self):
            value, lowest = getattr(self, each.name), each.metadata["lowest"]
            lowest = PROBLEMS[self.task].smallest if each.name == "longest" else lowest
            if lowest is not None and value < lowest:
                raise UserError(f"{flag(each.name)} {value}: give {lowest} or more")
            if isinstance(value, float) and not value > 0:
                raise UserError(f"{flag(each.name)} {value}: give a number above 0")
        if self.width % self.heads:
            raise UserError(f"--heads {self.heads}: does not divide --width {self.width}; give a number that does")
        if self.task == "recall" and self.symbols < 8 * self.longest:
            raise UserError(
                f"--symbols {self.symbols}: tests have {4 * self.longest} keys, and half of the symbols are keys; "
                f"give {8 * self.longest} or more"
            )

    @property
    def given(self) -> dict[str, Any]:
        """The task's options."""
        return dict(group=self.group, symbols=self.symbols)

    def shape(self, inner: int) -> Shape:
        """What the model is built from; ``inner``: see ``Architecture``. Without ``--span``, attention reaches over
        whole sequences: in word problems over those in training, or for the Feedback Transformer over 8 steps; in the
        other tasks over those in tests."""
        problem = PROBLEMS[self.task]
        if problem.by_position:
            whole = 8 if self.model == "feedback" else self.longest
        else:
            whole = problem.steps(4 * self.longest)
        span = self.span or whole
        return Shape(self.layers, self.width, self.heads, inner, span, self.memory_composition)


def add_options(parser: argparse.ArgumentParser, *left_out: str) -> None:
    """Add the options to a parser, but for some fields."""
    for each in fields(Options):
        if each.name not in left_out:
            kind, text = type(each.default), f"{each.metadata['help']} (default: %(default)s)"
            parser.add_argument(flag(each.name), type=kind, default=each.default, help=text)


def given_options(args: argparse.Namespace, **others: Any) -> Options:
    """The options on a command line.

    Args:
        args: what ``add_options`` has made of it.
        others: the fields that were left out.
    """
    names = [each.name for each in fields(Options) if each.name not in others]
    return Options(**{name: getattr(args, name) for name in names}, **others)
