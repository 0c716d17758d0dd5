"""From which checkpoint a fine-tuning started, and whether it has to start over."""

import os
import shutil

from fb_fairseq.papers.runner.data import checksum


def started_from(run: str, checkpoint: str) -> bool:
    """Whether the fine-tuning in RUN/ started from this checkpoint: RUN.from has its checksum."""
    name = f"{run}.from"
    if not os.path.exists(name):
        return False
    with open(name, encoding="utf-8", errors="replace") as file:
        return file.read().strip() == checksum(checkpoint)


def start_over(run: str, checkpoint: str) -> None:
    """Remove RUN/ and its files, and write down the checkpoint that it starts from."""
    folder, name = os.path.split(run)
    for other in os.listdir(folder):
        if other.startswith(f"{name}."):
            os.remove(os.path.join(folder, other))
    shutil.rmtree(run, ignore_errors=True)
    with open(f"{run}.from", "w") as file:
        file.write(f"{checksum(checkpoint)}\n")


def updates_of(checkpoint: str) -> int:
    """The number of updates of a checkpoint."""
    from fb_fairseq.commands.plot.checkpoints import load_checkpoint  # imports torch

    return load_checkpoint(checkpoint)["optimizer_history"][-1]["num_updates"]
