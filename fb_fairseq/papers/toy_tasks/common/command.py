"""Write a task's data: {train,valid,test}.{input,label}, with one sequence per line, for fairseq-preprocess.

    fb-fairseq synthetic-tasks random_walk --out walk --seed 1
    fairseq-preprocess --source-lang input --target-lang label --trainpref walk/train --validpref walk/valid \\
        --testpref walk/test --destdir walk/bin

The same seed gives the same data on every machine. No sequence occurs in more than one split (except in counting, which
has too few different ones).
"""

import json
import os
from collections.abc import Iterator
from typing import Any

from fb_fairseq.command_line import CommandParser, add_overwrite, whole_number
from fb_fairseq.errors import UserError, flag
from fb_fairseq.folders import own_folder
from fb_fairseq.papers.toy_tasks import load, names
from fb_fairseq.papers.toy_tasks.common import LabelledSequence, SeededRandom, Task
from fb_fairseq.papers.toy_tasks.common.sequences import SPLITS

NAME = "synthetic-tasks"
MAX_ATTEMPTS = 100  # sequences generated per sequence wanted, before we conclude that there are too few different ones


def build_parser() -> CommandParser:
    """The command line: one subcommand per task, with its options."""
    parser = CommandParser(NAME, description=__doc__)
    commands = parser.add_subparsers(dest="task", required=True)
    for task_name in names():
        task = load(task_name).TASK
        command = commands.add_parser(task_name, help=task.help, description=f"Data of the task: {task.help}.")
        command.add_argument("--out", required=True, metavar="DIR", help="folder to write the files to")
        add_overwrite(command)
        command.add_argument("--seed", type=int, default=1, metavar="N", help="random seed (default: %(default)s)")
        for split, number in task.sequences.items():
            text = f"number of sequences in {split}.input (default: %(default)s)"
            command.add_argument(flag(split), type=whole_number, default=number, metavar="N", help=text)
        for name, option in task.options.items():
            option.add(command, name)
    return parser


def check_options(task: Task, options: dict[str, Any]) -> None:
    """Check the task's own options. ``options``: see ``Task.limits``."""
    for name, option in task.options.items():
        for spelling in option.names(name):
            if options[spelling] is not None:
                option.check(spelling, options[spelling])
    for split in SPLITS:
        by_name = task.limits(split, options)
        for largest, smallest in by_name.values():
            if smallest and options[smallest] > options[largest]:
                least = f"{flag(smallest)} {options[smallest]}"
                raise UserError(f"{least}: more than {flag(largest)} {options[largest]}; give at most this")
        task.check(**{name: options[limit.largest] for name, limit in by_name.items()})


def generate_split(options: dict[str, Any], split: str, seen: set[tuple[str, ...]]) -> Iterator[LabelledSequence]:
    """The sequences of a split.

    Args:
        options: see ``Task.limits``; among them ``task``, ``seed``, and the number of sequences.
        split: which.
        seen: inputs in other splits, which are skipped if the task's splits are to be disjoint.
    """
    name = options["task"]
    wanted = options[split]
    task = load(name).TASK
    by_name = task.limits(split, options)
    generated = accepted = 0
    while accepted < wanted:
        rng = SeededRandom(options["seed"], name, split, generated)
        values = {}
        for own, (largest, smallest) in by_name.items():
            value = options[largest]
            values[own] = rng.randint(options[smallest], value) if smallest else value
        sequence = task.generate(rng, **values)
        generated += 1
        if not task.disjoint_splits or tuple(sequence.inputs) not in seen:
            accepted += 1
            yield sequence
        elif generated > MAX_ATTEMPTS * wanted:
            raise UserError(
                f"{name}: too few different sequences of this size for three disjoint splits; "
                "make the sequences longer, or ask for fewer (--train, --valid, --test)"
            )


def write_splits(options: dict[str, Any], folder: str) -> None:
    """Write all files of a task. The training split comes last and avoids the sequences of the others, so these do not
    depend on its size.

    Args:
        options: see ``generate_split``.
        folder: an existing one.
    """
    seen: set[tuple[str, ...]] = set()
    for split in reversed(SPLITS):
        inputs_path, labels_path = (os.path.join(folder, f"{split}.{side}") for side in ("input", "label"))
        new = set()
        with open(inputs_path, "w") as inputs_file, open(labels_path, "w") as labels_file:
            for sequence in generate_split(options, split, seen):
                inputs_file.write(" ".join(sequence.inputs) + "\n")
                labels_file.write(" ".join(sequence.labels) + "\n")
                if split != "train":
                    new.add(tuple(sequence.inputs))
        seen |= new
        print(f"{split}: {options[split]} sequences")


def main(argv: list[str] | None = None) -> None:
    """Run ``fb-fairseq synthetic-tasks``."""
    parser = build_parser()
    options = vars(parser.parse_args(argv))
    with parser.one_line_errors():
        check_options(load(options["task"]).TASK, options)
        out = options.pop("out")
        overwrite = options.pop("overwrite")
        with own_folder("--out", out, NAME, overwrite, made_from=json.dumps(options)) as folder:
            write_splits(options, folder)
