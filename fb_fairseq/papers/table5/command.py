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
import gc
import importlib
import importlib.util
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from fb_fairseq.errors import UserError
from fb_fairseq.files import check_output_file
from fb_fairseq.hardware import hardware
from fb_fairseq.papers.benchmark.measure import interleaved_medians, peak_bytes, progress, table
from fb_fairseq.papers.benchmark.models import add_number
from fb_fairseq.papers.table5.task import FULL, PAPERS, PER_LAYER, PHASES, SHARED, SMALL, TRANSFORMER, Task, Work

# Modules and classes; the first two need fairseq.
TASKS = {
    "lm": ("fairseq_tasks", "LanguageModelling"),
    "translation": ("fairseq_tasks", "Translation"),
    "rl": ("reinforcement_learning", "ReinforcementLearning"),
}
NEED_FAIRSEQ = ("lm", "translation")
GIGABYTE = 1e9
FASTEST_GROWTH = 8  # a batch is at most so many times larger than the largest that is known to fit


class Measured(NamedTuple):
    """Training or inference of one model."""

    key: str  # the task, as in ``--tasks``
    task: str  # its name
    phase: str
    kind: str
    batch: int  # the same for all models
    speed: float  # words or frames per second with that batch
    largest_batch: int  # the largest that fits into memory
    speed_at_largest: float  # words or frames per second with the largest batch
    state_bytes: int  # what inference keeps of the past of one stream

    @property
    def papers(self) -> float | None:
        """The papers' speed; None where they report none, and for per-layer projections."""
        return PAPERS.get((self.key, self.phase), {}).get(self.kind)

    def as_json(self) -> dict[str, Any]:
        """The measurements, and the papers' speed."""
        speeds = {name: round(getattr(self, name), 1) for name in ("speed", "speed_at_largest")}
        return {**self._asdict(), **speeds, "papers": self.papers}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    sizes = parser.add_mutually_exclusive_group()
    text = "small models, about two minutes on one CPU core (the default without a GPU)"
    sizes.add_argument("--small", action="store_true", default=None, help=text)
    text = "the papers' models (the default with a GPU; on a CPU it takes hours)"
    sizes.add_argument("--full", dest="small", action="store_false", help=text)
    text = f"memory that batches have to fit into (default: {FULL.memory:g}, with --small {SMALL.memory:g})"
    parser.add_argument("--memory", type=float, metavar="GB", help=text)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="what to measure (default: all)")
    add_number(parser, "--repeats", 3, "number of timed runs; their median is reported")
    parser.add_argument("--out", metavar="FILE", help="add the results to this file, as a line of JSON")


def run(args: argparse.Namespace) -> dict:
    """Measure all tasks, and print the table."""
    if args.small is None:
        args.small = not args.device.startswith("cuda")
    setting = SMALL if args.small else FULL
    args.memory = setting.memory if args.memory is None else args.memory
    check(args)
    found: list[Measured] = []
    for key in dict.fromkeys(args.tasks):
        module, name = TASKS[key]
        task = getattr(importlib.import_module(f"{__package__}.{module}"), name)(setting.sizes[key], args.device)
        state = {kind: task.state_bytes(kind) for kind in task.kinds}
        for phase in PHASES:
            found += measure(key, task, phase, state, args)
    print_report(found, args.memory)
    results = {"results": [measured.as_json() for measured in found]}
    if args.out:
        with open(args.out, "a", encoding="utf-8") as file:
            line = {**results, "setting": {**vars(args), "hardware": hardware(args.device), "torch": torch.__version__}}
            file.write(json.dumps(line) + "\n")
    return results


def check(args: argparse.Namespace) -> None:
    """Check the options."""
    if not args.memory > 0:
        raise UserError(f"--memory {args.memory:g}: give a positive number of gigabytes")
    if args.out:
        check_output_file("--out", args.out, "", overwrite=True)  # a line is added
    if importlib.util.find_spec("fairseq") is None and set(args.tasks) & set(NEED_FAIRSEQ):
        raise UserError("--tasks: lm and translation need fairseq, which is not installed; give --tasks rl")


def measure(key: str, task: Task, phase: str, state: dict[str, int], args: argparse.Namespace) -> list[Measured]:
    """Measure training or inference of a task's models, whose inference keeps so many bytes."""

    def speeds(batches: dict[str, int]) -> dict[str, float]:
        makers = [partial(task.work, phase, kind, batch) for kind, batch in batches.items()]
        return dict(zip(batches, words_per_second(makers, args.device, args.repeats)))

    def bytes_of(kind: str, batch: int) -> float:
        return work_bytes(partial(task.work, phase, kind, batch), args.device)

    title = f"{task.name}, {phase}"
    progress(f"{title}: speed with a batch of {task.sizes.batch}")
    equal_batch = speeds({kind: task.sizes.batch for kind in task.kinds})
    largest = {}
    for kind in task.kinds:
        progress(f"{title}, {kind}: the largest batch in {args.memory:g} GB")
        largest[kind] = largest_batch(partial(bytes_of, kind), args.memory * GIGABYTE, task.sizes.batch)
        if largest[kind] == 0:
            raise UserError(f"--memory {args.memory:g}: too small for {title}, {kind}, with a batch of 1; give more")
    progress(f"{title}: speed with batches of {', '.join(map(str, largest.values()))}")
    equal_memory = speeds(largest)
    batch = task.sizes.batch
    speed = {kind: (batch, equal_batch[kind], largest[kind], equal_memory[kind]) for kind in task.kinds}
    return [Measured(key, task.name, phase, kind, *speed[kind], state[kind]) for kind in task.kinds]


def words_per_second(makers: list[Callable[[], Work]], device: str, repeats: int) -> list[float]:
    """The speed of each work. On a CPU they take turns; on a GPU, whose memory one may fill, each is done alone."""
    groups = [[make] for make in makers] if device.startswith("cuda") else [makers]
    found = []
    for group in groups:
        works = [make() for make in group]
        for work in works:
            work.prepare()
        times = interleaved_medians([work.run for work in works], device, repeats)
        found += [work.words / time for work, time in zip(works, times)]
        del works, work
        release(device)
    return found


def work_bytes(make: Callable[[], Work], device: str) -> float:
    """The most bytes that tensors occupy at once: parameters, gradients, state, and what is computed for a moment;
    infinity if a GPU has not enough memory."""

    def whole() -> None:
        work = make()
        work.prepare()
        work.run()

    gc.collect()
    try:
        return peak_bytes(whole, device)
    except torch.cuda.OutOfMemoryError:
        return math.inf
    finally:
        release(device)


def release(device: str) -> None:
    """Free what models that are gone have left in memory."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def largest_batch(bytes_of: Callable[[int], float], limit: float, start: int) -> int:
    """The largest batch that takes at most ``limit`` bytes, if larger batches never take less; 0 if none does. Bytes
    grow about linearly, so the line through two batches says where to look, from ``start`` on; where it leads nowhere,
    the middle of what is left. Ends when a batch fits and the next does not, both measured."""
    fits, too_large = 0, math.inf
    measured: dict[int, float] = {}
    batch, halve = start, False
    while too_large - fits > 1:
        measured[batch] = bytes_of(batch)
        if measured[batch] <= limit:
            moved, fits = batch - fits, batch
        else:
            moved, too_large = too_large - batch, batch
        highest = too_large - 1 if too_large < math.inf else FASTEST_GROWTH * fits
        # After a small move (bytes may grow in steps), every second one goes to the middle.
        halve = moved <= 2 and not halve
        if halve:
            batch = (fits + 1 + (highest if too_large < math.inf else 2 * fits)) // 2
        else:
            batch = on_line(measured, limit)
        batch = min(max(batch, fits + 1), highest)
    return fits


def on_line(measured: dict[int, float], limit: float) -> int:
    """The batch that takes ``limit`` bytes, on the line through the two measured batches that come closest to it."""
    finite = [(batch, size) for batch, size in measured.items() if size < math.inf]
    near = sorted(finite, key=lambda point: abs(point[1] - limit))[:2]
    if len(near) < 2 or near[0][1] == near[1][1]:
        return 2 * max(measured) if not finite or near[0][1] <= limit else min(measured) // 2
    (a, bytes_a), (b, bytes_b) = near
    return int(a + (limit - bytes_a) * (b - a) / (bytes_b - bytes_a))


def print_report(found: list[Measured], memory: float) -> None:
    """Print the table, and a line about shared projections for each task that has both kinds."""
    models = {(m.key, m.phase, m.kind): m for m in found}
    rows = []
    for m in found:
        base = models[m.key, m.phase, TRANSFORMER]
        papers = ["", ""] if m.papers is None else [m.papers, m.papers / base.papers]
        equal_batch = [str(m.batch), m.speed, m.speed / base.speed]
        equal_memory = [str(m.largest_batch), m.speed_at_largest, m.speed_at_largest / base.speed_at_largest]
        rows.append([f"{m.task}, {m.phase}: {m.kind}", *equal_batch, *equal_memory, *papers])
    ratio = "ratio"
    table(["words/s (rl: frames/s)", "batch", "speed", ratio, f"{memory:g} GB", "speed", ratio, "papers", ratio], rows)
    print("\nratio: relative to the Transformer. papers: v3 Table 5, with their batches on their GPUs.")
    for key in dict.fromkeys(m.key for m in found):
        shared, per_layer = (models.get((key, "inference", kind)) for kind in (SHARED, PER_LAYER))
        if per_layer is None:
            continue
        papers = " (papers: almost 3)" if key == "lm" else ""
        print(
            f"Shared projections, {shared.task}: inference {shared.speed / per_layer.speed:.2f} times as fast at equal "
            f"batch, {shared.speed_at_largest / per_layer.speed_at_largest:.2f} times at equal memory{papers}; "
            f"{shared.state_bytes / 1e3:,.1f} KB of state per stream instead of {per_layer.state_bytes / 1e3:,.1f}."
        )
