"""Table 5 of the Feedback Transformer: training and inference speed of both models in three tasks.

Tasks: language modelling on streams (lm), translation with 6 encoder and 2 decoder layers, and reinforcement learning
in mazes (rl). Feedback Transformers share the memory's projections, as in v3, or have one per layer, as in v1.

Speeds are words per second (rl: frames) at equal batch, and at equal memory: each model with the largest batch that
fits into --memory gigabytes of parameters, gradients, state and activations. A batch is a number of streams, sentences
or environments. Parameters are random. Training is the forward pass, loss and backward pass of whole models; of rl a
whole update, its environments included. Inference is greedy for lm and rl, both with a full memory, and beam search for
translation. Everything is in fp32. lm and translation need fairseq.
"""

import argparse
import importlib
import importlib.util
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.papers.benchmark.memory import largest_batch, work_bytes
from fb_fairseq.papers.benchmark.tables import table
from fb_fairseq.papers.benchmark.tasks import PHASES, Task, papers_speed
from fb_fairseq.papers.benchmark.timing import measure, progress
from fb_fairseq.papers.benchmark.work import is_gpu

# Modules and classes; the first two need fairseq.
TASKS = {
    "lm": ("language_modelling", "LanguageModelling"),
    "translation": ("translation", "Translation"),
    "rl": ("agents", "ReinforcementLearning"),
}
FULL_MEMORY, SMALL_MEMORY = 32, 0.04  # defaults of --memory
GIGABYTE = 1e9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    sizes = parser.add_mutually_exclusive_group()
    text = "small models, minutes on one CPU core (the default without a GPU)"
    sizes.add_argument("--small", action="store_true", default=None, help=text)
    text = "the papers' models (the default with a GPU; on a CPU it takes hours)"
    sizes.add_argument("--full", dest="small", action="store_false", help=text)
    text = f"memory that batches have to fit into (default: {FULL_MEMORY:g}, with --small {SMALL_MEMORY:g})"
    parser.add_argument("--memory", type=float, metavar="GB", help=text)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="what to measure (default: all)")


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure all tasks, and print the table. Returns what ``measured`` returns, of each task and phase. The defaults
    of ``--small`` and ``--memory`` are written to ``args``, which the command prints as the setting.
    """
    if args.small is None:
        args.small = not is_gpu(args.device)
    if args.memory is None:
        args.memory = SMALL_MEMORY if args.small else FULL_MEMORY
    if not 0 < args.memory < math.inf:
        raise UserError(f"--memory {args.memory:g}: give a positive number of gigabytes")
    if importlib.util.find_spec("fairseq") is None and set(args.tasks) - {"rl"}:
        raise UserError("--tasks: lm and translation need fairseq, which is not installed; give --tasks rl")
    groups = []
    for key in dict.fromkeys(args.tasks):
        task_class = find_task(key)
        task = task_class(task_class.small if args.small else task_class.full, args.device)
        groups += [measured(key, task, phase, args) for phase in PHASES]
    print_report(groups, args.memory)
    return [each for group in groups for each in group]


def find_task(key: str) -> type[Task]:
    """A class of ``TASKS``, whose module is imported only now."""
    module, name = TASKS[key]
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)


def measured(key: str, task: Task, phase: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure training or inference of a task's models.

    Args:
        key: of the task, in ``TASKS``.
        task: the task.
        phase: one of ``PHASES``.
        args: the options of the command.

    Returns:
        Of each model, what it is, its "speed" in words or frames per second with the "batch" that is the same for all,
        the "largest_batch" that fits into memory and the "speed_at_largest", the "state_bytes" that inference keeps of
        the past of one stream, and the speed in the "papers", or None.
    """
    batch = task.sizes.batch
    largest = [largest_in_memory(task, phase, kind, args) for kind in task.kinds]
    speed = speeds(task, phase, [batch] * len(largest), args)
    speed_at_largest = speeds(task, phase, largest, args)
    return [
        {
            "key": key,
            "task": task.name,
            "phase": phase,
            "kind": kind,
            "batch": batch,
            "speed": speed[i],
            "largest_batch": largest[i],
            "speed_at_largest": speed_at_largest[i],
            "state_bytes": task.state_bytes(kind),
            "papers": papers_speed(key, phase, kind),
        }
        for i, kind in enumerate(task.kinds)
    ]


def largest_in_memory(task: Task, phase: str, kind: str, args: argparse.Namespace) -> int:
    """The largest batch that fits into ``--memory``.

    Args:
        task, phase, args: see ``measured``.
        kind: the model, one of ``task.kinds``.
    """
    title = f"{task.name}, {phase}, {kind}"
    progress(f"{title}: the largest batch in {args.memory:g} GB")
    work = partial(getattr(task, phase), kind)
    found = largest_batch(
        lambda batch: work_bytes(partial(work, batch), args.device), args.memory * GIGABYTE, task.sizes.batch
    )
    if found == 0:
        raise UserError(f"--memory {args.memory:g}: too small for {title}, with a batch of 1; give more")
    return found


def speeds(task: Task, phase: str, batches: Sequence[int], args: argparse.Namespace) -> list[float]:
    """The words or frames per second of each of a task's models.

    Args:
        task, phase, args: see ``measured``.
        batches: that of each model.
    """
    progress(f"{task.name}, {phase}: speed with batches of {', '.join(map(str, batches))}")
    work = getattr(task, phase)
    makers = [partial(work, kind, batch) for kind, batch in zip(task.kinds, batches)]
    return measure(makers, args.device, args.repeats, lambda run, seconds: round(run.words / seconds, 1))


def print_report(groups: Sequence[list[dict[str, Any]]], memory: float) -> None:
    """Print the table.

    Args:
        groups: what ``measured`` returns, of each task and phase. The first of each is the Transformer.
        memory: in gigabytes.
    """
    rows = []
    for group in groups:
        base = group[0]
        for each in group:
            row = [f"{each['task']}, {each['phase']}: {each['kind']}"]
            for size, speed in (("batch", "speed"), ("largest_batch", "speed_at_largest")):
                row += [str(each[size]), each[speed], each[speed] / base[speed]]
            papers = each["papers"]
            row += [papers, papers / base["papers"]] if papers else ["", ""]
            rows.append([*row, each["state_bytes"] / 1e3])
    head = ["words/s (rl: frames/s)", "batch", "speed", "ratio", f"{memory:g} GB", "speed", "ratio", "papers", "ratio"]
    table([*head, "KB of state"], rows)
    print(
        "\nratio: relative to the Transformer. papers: v3 Table 5, with their batches on their GPUs; shared projections"
        "\nmake inference of language models almost 3 times as fast."
    )
