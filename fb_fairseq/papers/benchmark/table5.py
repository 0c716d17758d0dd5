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
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from fb_fairseq.errors import UserError
from fb_fairseq.papers.benchmark.measure import Work, is_gpu, measure, peak_bytes, progress, release, table
from fb_fairseq.papers.benchmark.tasks import PHASES, TRANSFORMER, Task, papers_speed

# Modules and classes; the first two need fairseq.
TASKS = {
    "lm": ("language_modelling", "LanguageModelling"),
    "translation": ("translation", "Translation"),
    "rl": ("agents", "ReinforcementLearning"),
}
# The papers' sizes: they name the corpora, the layers of translation and, in v3 Tables 8 and 9, the models; batches are
# ours. What each size is, the tasks say.
FULL = {
    "lm": dict(preset="wikitext103_large", options={}, vocabulary=267_735, block=256, steps=64, batch=16),
    "translation": dict(
        encoder_layers=6,
        layers=2,
        embed_dim=1024,
        ffn_dim=4096,
        heads=16,
        vocabulary=32_768,
        length=25,
        beam=5,
        batch=128,
    ),
    "rl": dict(small=False, options={}, steps=64, batch=1024),
}
SMALL_LM = dict(
    decoder_layers=4,
    decoder_embed_dim=128,
    decoder_ffn_embed_dim=512,
    decoder_attention_heads=4,
    decoder_normalize_before=True,
    attention_span=64,
    dropout=0.1,
    attention_dropout=0.1,
)
SMALL_TRANSLATION = dict(embed_dim=128, ffn_dim=256, heads=4, vocabulary=2000, length=16, batch=8)
SMALL = {
    "lm": dict(preset="", options=SMALL_LM, vocabulary=2000, block=32, steps=16, batch=8),
    "translation": {**FULL["translation"], **SMALL_TRANSLATION},
    "rl": dict(small=True, options={}, steps=16, batch=64),
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
    if not args.memory > 0:
        raise UserError(f"--memory {args.memory:g}: give a positive number of gigabytes")
    if importlib.util.find_spec("fairseq") is None and set(args.tasks) - {"rl"}:
        raise UserError("--tasks: lm and translation need fairseq, which is not installed; give --tasks rl")
    found: list[dict[str, Any]] = []
    for key in dict.fromkeys(args.tasks):
        task = new_task(key, (SMALL if args.small else FULL)[key], args.device)
        for phase in PHASES:
            found += measured(key, task, phase, args)
    print_report(found, args.memory)
    return found


def new_task(key: str, sizes: Mapping[str, Any], device: str) -> Task:
    """A task of ``TASKS``, whose module is imported only now. ``sizes``: such as those in ``FULL``. ``device``: cpu or
    cuda.
    """
    module, name = TASKS[key]
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)(sizes, device)


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

    title = f"{task.name}, {phase}"
    batch = task.sizes.batch
    work = getattr(task, phase)

    def speeds(batches: dict[str, int]) -> dict[str, float]:
        progress(f"{title}: speed with batches of {', '.join(map(str, batches.values()))}")
        makers = [partial(work, kind, batch) for kind, batch in batches.items()]
        found = measure(makers, args.device, args.repeats, lambda run, seconds: round(run.words / seconds, 1))
        return dict(zip(batches, found))

    def bytes_of(kind: str, batch: int) -> int:
        return work_bytes(partial(work, kind, batch), args.device)

    speed = speeds(dict.fromkeys(task.kinds, batch))
    largest = {}
    for kind in task.kinds:
        progress(f"{title}, {kind}: the largest batch in {args.memory:g} GB")
        largest[kind] = largest_batch(partial(bytes_of, kind), args.memory * GIGABYTE, batch)
        if largest[kind] == 0:
            raise UserError(f"--memory {args.memory:g}: too small for {title}, {kind}, with a batch of 1; give more")
    speed_at_largest = speeds(largest)
    return [
        {
            "key": key,
            "task": task.name,
            "phase": phase,
            "kind": kind,
            "batch": batch,
            "speed": speed[kind],
            "largest_batch": largest[kind],
            "speed_at_largest": speed_at_largest[kind],
            "state_bytes": task.state_bytes(kind),
            "papers": papers_speed(key, phase, kind),
        }
        for kind in task.kinds
    ]


def work_bytes(make: Callable[[], Work], device: str) -> float:
    """The most bytes that tensors occupy at once: parameters, gradients, state, and what is computed for a moment;
    infinity if a GPU has not enough memory.

    Args:
        make: builds what is measured.
        device: cpu or cuda.
    """

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


def largest_batch(bytes_of: Callable[[int], float], limit: float, start: int) -> int:
    """The largest batch that fits, if larger ones never take less. The search doubles, then halves.

    Args:
        bytes_of: measures what a batch takes.
        limit: bytes that there are.
        start: the batch to begin with.

    Returns:
        The batch; 0 if not even 1 fits.
    """
    fits, too_large, batch = 0, 0, start
    while not too_large or too_large - fits > 1:
        if bytes_of(batch) <= limit:
            fits = batch
        else:
            too_large = batch
        batch = (fits + too_large) // 2 if too_large else 2 * fits
    return fits


def print_report(found: list[dict[str, Any]], memory: float) -> None:
    """Print the table of measurements; ``memory``: in gigabytes."""
    base: dict[str, Any] = {}
    rows = []
    for each in found:
        if each["kind"] == TRANSFORMER:
            base = each
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
