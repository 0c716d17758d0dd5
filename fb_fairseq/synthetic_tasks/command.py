"""Write a task's data: ``{train,valid,test}.{input,label}``, a sequence a line, for ``fairseq-preprocess``.

    python -m fb_fairseq synthetic-tasks random_walk --seed 1 --out walk
    fairseq-preprocess --source-lang input --target-lang label --trainpref walk/train --validpref walk/valid \\
        --testpref walk/test --destdir walk/bin

The same seed gives the same data on every machine. No training sequence is in another split (but in counting, which has
too few different ones).
"""

import argparse
import os
import shutil
import tempfile

from fb_fairseq.synthetic_tasks.draw import Draw
from fb_fairseq.synthetic_tasks.tasks import TASKS, Task

SPLITS = ("train", "valid", "test")


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def parse(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m fb_fairseq synthetic-tasks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="task", required=True)
    for name, task in TASKS.items():
        command = commands.add_parser(name)
        command.add_argument("--out", required=True, help="folder to write to")
        command.add_argument("--seed", type=int, default=1)
        for split, number in zip(SPLITS, task.sequences):
            command.add_argument(f"--{split}", type=int, default=number, help=f"sequences (default: {number})")
        for size, (default, text, _, _, test_name) in task.sizes.items():
            command.add_argument(flag(size), type=int, default=default, help=f"{text} (default: {default})")
            if test_name:
                command.add_argument(flag(test_name), type=int, help=f"{text} in the test split (default: the same)")
    args = parser.parse_args(argv)
    for split in SPLITS:
        if getattr(args, split) < 1:
            parser.error(f"--{split} {getattr(args, split)}: give 1 or more sequences")
    for name, size in TASKS[args.task].sizes.items():
        for option in filter(None, (name, size.test_name)):
            value = getattr(args, option)
            if value is not None and not size.lowest <= value <= size.highest:
                parser.error(f"{flag(option)} {value}: give {size.lowest} to {size.highest}")
    return args, parser


def sequences(task: Task, args, split: str, known: set):
    """A split's sequences, none of them in ``known``."""
    sizes = {
        name: (getattr(args, size.test_name) if split == "test" and size.test_name else None) or getattr(args, name)
        for name, size in task.sizes.items()
    }
    number = made = 0
    while made < getattr(args, split):
        inputs, labels = task.make(Draw(args.seed, args.task, split, number), **sizes)
        number += 1
        if not task.distinct or tuple(inputs) not in known:
            made += 1
            yield inputs, labels
        elif number > 100 * getattr(args, split):
            raise SystemExit(
                f"{args.task}: there are too few different sequences of this size for three splits without common ones; "
                f"make them longer, or give fewer (--train, --valid, --test)"
            )


def write(args) -> None:
    """All files, or none."""
    os.makedirs(args.out, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=".illustrative_tasks", dir=args.out)
    try:
        write_splits(args, scratch)
        for name in os.listdir(scratch):
            os.replace(os.path.join(scratch, name), os.path.join(args.out, name))
    finally:
        shutil.rmtree(scratch)


def write_splits(args, folder: str) -> None:
    task, known = TASKS[args.task], set()
    for split in reversed(SPLITS):
        paths = [os.path.join(folder, f"{split}.{side}") for side in ("input", "label")]
        new = set()
        with open(paths[0], "w") as inputs_file, open(paths[1], "w") as labels_file:
            for inputs, labels in sequences(task, args, split, known):
                inputs_file.write(" ".join(inputs) + "\n")
                labels_file.write(" ".join(labels) + "\n")
                if split != "train":
                    new.add(tuple(inputs))
        known |= new
        print(f"{split}: {getattr(args, split)} sequences")


def main(argv=None) -> None:
    args, parser = parse(argv)
    try:
        write(args)
    except OSError as error:
        parser.error(f"--out {args.out}: {error.strerror}")


if __name__ == "__main__":
    main()
