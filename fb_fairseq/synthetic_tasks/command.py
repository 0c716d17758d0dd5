"""Write a task's data: {train,valid,test}.{input,label}, with one sequence per line, for fairseq-preprocess.

    python -m fb_fairseq synthetic-tasks random_walk --out walk --seed 1
    fairseq-preprocess --source-lang input --target-lang label --trainpref walk/train --validpref walk/valid \\
        --testpref walk/test --destdir walk/bin

The same seed gives the same data on every machine. No sequence occurs in more than one split (except in counting, which
has too few different ones).
"""

import os
from typing import Any, Dict, Iterator, Set, Tuple

from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import UserError, flag
from fb_fairseq.files import atomic_folder, check_output_folder
from fb_fairseq.synthetic_tasks.seeded_random import SeededRandom
from fb_fairseq.synthetic_tasks.sequence import LabelledSequence
from fb_fairseq.synthetic_tasks.tasks import TASKS, Splits, Task

MAX_ATTEMPTS = 100  # sequences generated per sequence wanted, before we conclude that there are too few different ones


def build_parser() -> CommandParser:
    """The command line: one subcommand per task, with an option for each of its sizes."""
    parser = CommandParser("synthetic-tasks", description=__doc__)
    commands = parser.add_subparsers(dest="task", required=True)
    for task_name, task in TASKS.items():
        command = commands.add_parser(task_name, help=task.help, description=f"Data of the task: {task.help}.")
        command.add_argument("--out", required=True, metavar="DIR", help="folder to write the files to")
        command.add_argument("--seed", type=int, default=1, metavar="N", help="random seed (default: %(default)s)")
        for split, number in task.sequences._asdict().items():
            text = f"number of sequences in {split}.input (default: %(default)s)"
            command.add_argument(flag(split), type=int, default=number, metavar="N", help=text)
        for name, size in task.sizes.items():
            text = f"{size.help} (default: %(default)s)"
            command.add_argument(flag(name), type=int, default=size.default, metavar="N", help=text)
            if size.test_name:
                text = f"{size.help} of the test split (default: as {flag(name)})"
                command.add_argument(flag(size.test_name), type=int, metavar="N", help=text)
    return parser


def check_options(task: Task, options: Dict[str, Any]) -> None:
    """Check the numbers of sequences and their sizes.

    Raises:
        UserError: a number is out of range.
    """
    for split in Splits._fields:
        if options[split] < 1:
            raise UserError(f"{flag(split)} {options[split]}: give 1 or more sequences")
    for name, size in task.sizes.items():
        for option in filter(None, (name, size.test_name)):
            value = options[option]
            if value is not None and not size.lowest <= value <= size.highest:
                raise UserError(f"{flag(option)} {value}: give a number from {size.lowest} to {size.highest}")


def sizes_of_split(task: Task, options: Dict[str, Any], split: str) -> Dict[str, int]:
    """The sizes of a split's sequences by name."""
    sizes = {name: options[name] for name in task.sizes}
    for name, size in task.sizes.items():
        if split == "test" and size.test_name and options[size.test_name] is not None:
            sizes[name] = options[size.test_name]
    return sizes


def generate_split(options: Dict[str, Any], split: str, seen: Set[Tuple[str, ...]]) -> Iterator[LabelledSequence]:
    """The sequences of a split.

    Args:
        seen: inputs of the sequences in other splits, which are skipped if the task's splits are to be disjoint.

    Raises:
        UserError: there are too few sequences that other splits do not have.
    """
    name, wanted = options["task"], options[split]
    task = TASKS[name]
    sizes = sizes_of_split(task, options, split)
    generated = accepted = 0
    while accepted < wanted:
        sequence = task.generate(SeededRandom(options["seed"], name, split, generated), **sizes)
        generated += 1
        if not task.disjoint_splits or tuple(sequence.inputs) not in seen:
            accepted += 1
            yield sequence
        elif generated > MAX_ATTEMPTS * wanted:
            raise UserError(
                f"{name}: too few different sequences of this size for three disjoint splits; "
                "make the sequences longer, or ask for fewer (--train, --valid, --test)"
            )


def write_splits(options: Dict[str, Any], folder: str) -> None:
    """Write all files to ``folder``.

    The training split comes last and avoids the sequences of the others, so these do not depend on its size.
    """
    seen: Set[Tuple[str, ...]] = set()
    for split in reversed(Splits._fields):
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


def main(argv=None) -> None:
    """Run ``python -m fb_fairseq synthetic-tasks``."""
    parser = build_parser()
    options = vars(parser.parse_args(argv))
    with parser.one_line_errors():
        check_options(TASKS[options["task"]], options)
        check_output_folder("--out", options["out"])
        with atomic_folder(options["out"]) as folder:
            write_splits(options, folder)
