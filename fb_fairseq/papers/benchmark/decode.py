"""Decoding step by step: time per token along an endless stream, and bytes of the state.

Each model decodes random embeddings, with a ring of --span slots as its memory. The stream is timed in ten parts:
neither time nor state should grow from the second part on.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import torch

from fb_fairseq.ops.feedback.loops import REFERENCE
from fb_fairseq.ops.feedback.ring import STORAGES
from fb_fairseq.papers.benchmark import models
from fb_fairseq.papers.benchmark.models import MODELS, Case
from fb_fairseq.papers.benchmark.options import DTYPES, add_model_options, add_number
from fb_fairseq.papers.benchmark.tables import table
from fb_fairseq.papers.benchmark.timing import seconds

PARTS = 10
CASES = {
    **{name: Case(name) for name in MODELS},
    # The steps in C++ that the others take where they can, against torch's operations.
    "feedback, reference": Case("feedback", {"step_loop": REFERENCE}),
    "transformer, reference": Case("transformer", {"step_loop": REFERENCE}),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_model_options(parser)
    add_number(parser, "--steps", 20_000, "length of the stream, in tokens")
    parser.add_argument(
        "--storage",
        nargs="+",
        choices=STORAGES,
        default=list(STORAGES),
        help="what the memory keeps of each step: projected keys and values, or the memory vectors (default: both, one "
        "after the other)",
    )


def run(args: argparse.Namespace) -> dict[str, dict]:
    """Decode a stream with each model and storage.

    Args:
        args: the options of the command.

    Returns:
        The measurements of each, see ``time_parts``, with "tokens_per_second".
    """
    found: dict[str, dict] = {}
    for name, case in models.only(CASES, args).items():
        model = models.build_model(case.model, args, **case.options).eval()
        x_BD = torch.randn(args.batch_size, args.embed_dim, device=args.device, dtype=DTYPES[args.dtype])
        for storage in args.storage:
            ring = model.new_ring(storage)
            found[f"{name}, {storage}"] = time_parts(model, partial(model.run_step, x_BD, ring), ring.nbytes, args)
    rows = []
    for name, each in found.items():
        times = each["ms_per_token"]
        sizes = each["state_bytes"]
        each["tokens_per_second"] = round(args.batch_size * PARTS / sum(times) * 1e3, 1)
        measured = [times[1], statistics.median(times), times[-1], each["tokens_per_second"], sizes[1], sizes[-1]]
        rows.append([name, each["parameters"], *measured])
    times_head = ["ms/step: part 2", "median", f"part {PARTS}"]
    table(["", "parameters", *times_head, "tokens/s overall", "state bytes: part 2", f"part {PARTS}"], rows)
    return found


@torch.no_grad()
def time_parts(
    model: torch.nn.Module, step: Callable[[], object], nbytes: Callable[[], int], args: argparse.Namespace
) -> dict:
    """Time a stream in ten parts.

    Args:
        model: whose parameters are counted.
        step: decodes the next step.
        nbytes: tells the bytes of the state.
        args: the options of the command.

    Returns:
        "parameters"; "ms_per_token", milliseconds of a step in each part, and "state_bytes" at its end.
    """
    steps = max(args.steps // PARTS, 1)
    times, sizes = [], []

    def part() -> None:
        for _ in range(steps):
            step()

    for _ in range(PARTS):
        time = seconds(part, args.device)
        times.append(round(time / steps * 1e3, 4))
        sizes.append(nbytes())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters, "ms_per_token": times, "state_bytes": sizes}
