"""The options of ``state-tracking train``."""

import argparse
from dataclasses import dataclass, fields
from typing import Any

from fb_fairseq.command_line import LARGEST_SEED, option
from fb_fairseq.errors import flag
from fb_fairseq.modules.options import CheckedOptions
from fb_fairseq.papers.state_tracking.architectures import ARCHITECTURES, Shape
from fb_fairseq.papers.state_tracking.problems import GROWTHS
from fb_fairseq.papers.toy_tasks.word_problem import GROUPS

FACTOR = 16  # tests of word problems go to so many times the longest sequences in training
OTHER_FACTOR = 4  # of the other tasks


@dataclass(frozen=True)
class Options(CheckedOptions):
    """The options of a training: task, model, optimizer. The help texts say what each field is."""

    task: str = option("word_problem", ", ".join(GROWTHS), GROWTHS)
    group: str = option("A5", f"of word problems: {', '.join(GROUPS)}", GROUPS)
    symbols: int = option(256, "number of different symbols in recall")
    model: str = option("feedback", ", ".join(ARCHITECTURES), ARCHITECTURES)
    memory_composition: str = option("weighted", "of the Feedback Transformer: weighted, average, previous, layer:2, …")
    layers: int = option(2, "number of layers")
    width: int = option(64, "model width")
    heads: int = option(2, "number of heads, where a model has some")
    span: int = option(
        0,
        "how many steps back attention reaches; 0: in word problems --longest, but 8 for the Feedback Transformer; in "
        "the other tasks all steps of the longest tests",
    )
    longest: int = option(
        32,
        f"training sequences have up to so many elements (recall: pairs); tests go to {FACTOR} times as many (recall: "
        f"{OTHER_FACTOR} times)",
    )
    curriculum: str = option(
        "growing",
        "growing: training sequences get longer as soon as the model is right; mixed: each update has one size of all "
        "up to --longest, drawn at random",
        ("growing", "mixed"),
    )
    test_sequences: int = option(3000, "sequences of each size in tests")
    updates: int = option(8000, "of training")
    tokens: int = option(2048, "steps in an update")
    lr: float = option(0.002, "learning rate of Adam")
    clip_norm: float = option(1.0, "gradients of a larger norm are scaled down to it")
    seed: int = option(1, "of the parameters and the data")

    def __post_init__(self):
        self.check_fields()
        self.check_positive("layers", "width", "heads", "test_sequences", "updates", "tokens")
        self.check(0 <= self.seed <= LARGEST_SEED, "seed", f"give a number from 0 to {LARGEST_SEED}")
        for name in ("lr", "clip_norm"):
            self.check(getattr(self, name) > 0, name, "must be greater than 0")
        smallest = GROWTHS[self.task].smallest
        self.check(self.longest >= smallest, "longest", f"must be {smallest} or more")
        self.check(self.span >= 0, "span", "must be 0 or more")
        self.check(self.width % self.heads == 0, "heads", f"does not divide --width {self.width}; give one that does")
        keys = OTHER_FACTOR * self.longest
        enough = 2 * keys
        tests = f"tests have {keys} keys, and half of the symbols are keys"
        self.check(self.task != "recall" or self.symbols >= enough, "symbols", f"{tests}; give {enough} or more")

    @property
    def given(self) -> dict[str, Any]:
        """The task's options."""
        return dict(group=self.group, symbols=self.symbols)

    def shape(self, inner: int) -> Shape:
        """The sizes that the model is built from. ``inner``: see ``Architecture``.

        Without ``--span``, attention reaches over whole sequences: in word problems over those in training (the
        Feedback Transformer's over 8 steps), in the other tasks over those in tests.
        """
        growth = GROWTHS[self.task]
        if growth.by_position:
            whole = 8 if self.model == "feedback" else self.longest
        else:
            whole = growth.steps(OTHER_FACTOR * self.longest)
        return Shape(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            inner=inner,
            span=self.span or whole,
            memory_composition=self.memory_composition,
        )


def add_options(parser: argparse.ArgumentParser, *left_out: str) -> None:
    """Add the options to a parser, but for some fields."""
    for each in fields(Options):
        if each.name not in left_out:
            kind = type(each.default)
            text = f"{each.metadata['help']} (default: %(default)s)"
            parser.add_argument(flag(each.name), type=kind, default=each.default, help=text)


def given_options(args: argparse.Namespace, **others: Any) -> Options:
    """The options on a command line.

    Args:
        args: what ``add_options`` has made of it.
        others: the fields that were left out.
    """
    names = [each.name for each in fields(Options) if each.name not in others]
    return Options(**{name: getattr(args, name) for name in names}, **others)
