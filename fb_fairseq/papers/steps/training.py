"""A training with fairseq."""

from collections.abc import Mapping
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.papers.steps import Call, Step
from fb_fairseq.papers.steps.words import words

FINETUNED = "-finetuned"
NEVER = 1_000_000  # epochs: validation and checkpoints follow the updates, as an epoch's length depends on the data
INTERVAL = 25  # updates between log entries, or fewer: about ten points in figures


def best(call: Call, run: str) -> str:
    """The best checkpoint of a run."""
    return call.at(run, "checkpoint_best.pt")


def fairseq_train(
    call: Call, run: str, *, data: str, options: Mapping[str, Any], updates: int, every: int, seed: int
) -> Step:
    """Train OUT/RUN on OUT/DATA. Its output is added to OUT/RUN.log.

    Args:
        call: the call of the recipe.
        run: the folder of the checkpoints.
        data: the folder of the binarised data.
        options: of fairseq-train, beside those that follow.
        updates: their number.
        every: updates between validations, and between checkpoints.
        seed: of the parameters and the data's order.
    """
    command = [*call.launch, "fairseq-train", call.at(data), "--user-dir", "fb_fairseq", *words(options)]
    command += ["--validate-interval-updates", every, "--save-interval-updates", every]
    command += ["--validate-interval", NEVER, "--save-interval", NEVER, "--no-epoch-checkpoints", "--seed", seed]
    command += [*call.cpu, "--log-format", "json", "--log-interval", min(INTERVAL, (updates + 9) // 10)]
    command += [*call.extra, "--max-update", updates, "--save-dir", call.at(run)]
    log = call.at(f"{run}.log")
    return Step(f"train {run}", command, [best(call, run), log], log=log, trains=True)


def batch_of(call: Call, streams: int) -> dict[str, int]:
    """The options of a batch of so many streams, over all processes and all parts of an update."""
    freq = call.options.get("update_freq", 1)
    parts = call.processes * freq
    if streams % parts:
        raise UserError(f"{streams} streams cannot be divided by {parts}: --processes (or GPUs) times --update-freq")
    return {"batch_size": streams // parts, "update_freq": freq}


def suffix(seed: int, layers: int | None = None, span: int | None = None) -> str:
    """The end of a run's name: what it differs in, and its seed unless that is 1."""
    parts = []
    if span:
        parts.append(f"-span{span}")
    if layers:
        parts.append(f"-{layers}")
    if seed != 1:
        parts.append(f"-seed{seed}")
    return "".join(parts)
