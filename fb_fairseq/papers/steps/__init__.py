"""Experiments as lists of steps. A step is a command and the files that it writes; a recipe is a function that yields
the steps of a call; all three are data. ``plan.py`` tells which steps are done, ``engine.py`` runs the others;
``show.py`` prints all.

    language_modeling.py, translation.py, labels.py, agents.py, tracking.py   the steps of each kind of experiment
    memory_composition.py, quickstart.py   those of one experiment each
    training.py   a training with fairseq
    results.py    the last steps, which collect, compare and draw results
    data.py       steps that prepare data; corpora.py: what they make of the papers' corpora; check.py: a command that
                  checks files
    recipes.py    the names of all recipes
    command.py, options.py   the command line; start.py: that of the quickstart
    running.py    the command of a step
    words.py      options as words of the steps' commands
    progress.py   what is said of steps; environment.py: in which commands run; machine.py: what
                  results are made on
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PYTHON = ("python", "-m")


@dataclass(frozen=True)
class Step:
    """A command, and the files that it writes.

    A step comes after all earlier ones whose files its words name (the file, or a folder above it, also as NAME=PATH),
    and after those that read a file of the user that it reads, such as its check. Others may run at the same time.

    Attributes:
        does: what it does, in a few words, which no other step of the call has.
        words: the command. The value ``fb_fairseq`` of ``--user-dir`` stands for this package wherever it is.
        writes: the files that are there when it is done.
        reads: files of the user on whose content it depends.
        output: file for its standard output, which is there when the command has succeeded; empty: the log.
        log: file to which the rest of its output is added; empty: one named like the step, in OUT/logs.
        source: file for its standard input; empty: none.
        trains: it goes on from what an unfinished call has left. Another command does not replace its files, but is
            refused.
        shown: the output, or the last line of the log, is also shown.
        alone: it measures time, so no other step runs meanwhile.
    """

    does: str
    words: Sequence[object]
    writes: Sequence[str]
    reads: Sequence[str] = ()
    output: str = ""
    log: str = ""
    source: str = ""
    trains: bool = False
    shown: bool = False
    alone: bool = False


@dataclass(frozen=True)
class Call:
    """A call of a recipe: its command line, and the machine.

    Attributes:
        name: of the recipe.
        out: the output folder.
        data: DATA, the user's file or folder; empty if the recipe takes none.
        small: whether the small setting is asked for.
        options: the recipe's own options that were given, by their names with underscores.
        extra: words for the command that trains, after ``--``.
        launch: words before each ``fairseq-train``, such as those of torchrun.
        processes: number of training processes, over which an update is divided.
        cpu: the option ``--cpu`` for fairseq's commands, or nothing.
    """

    name: str
    out: str
    data: str = ""
    small: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    extra: Sequence[str] = ()
    launch: Sequence[str] = ()
    processes: int = 1
    cpu: Sequence[str] = ("--cpu",)

    def at(self, *names: str) -> str:
        """A path in the output folder."""
        return os.path.join(self.out, *names)

    def given(self, *names: str) -> dict[str, Any]:
        """The options of these names that were given, with their values."""
        return {name: self.options[name] for name in names if name in self.options}


@dataclass(frozen=True)
class Recipe:
    """An experiment.

    Attributes:
        summary: one line for the list of recipes.
        steps: yields the steps of a call, without reading or writing the output folder.
        options: its own options by their names with underscores: the type, or None if they have no value, and the help
            (``options.py`` has those of several recipes).
        data: what DATA is; empty: it takes none.
        sizes: whether there are two settings, and which is the default: "full", "small", or only "one".
        variant: the option whose value is a part of the default output folder's name; empty: none.
        extra: the command that gets the words after ``--``; empty: none does.
        told: whether each command is printed when it begins.
    """

    summary: str
    steps: Callable[[Call], Iterable[Step]]
    options: Mapping[str, tuple[Callable[[str], Any] | None, str]] = field(default_factory=dict)
    data: str = ""
    sizes: str = "full"
    variant: str = ""
    extra: str = "fairseq-train"
    told: bool = False
