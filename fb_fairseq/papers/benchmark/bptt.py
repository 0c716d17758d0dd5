"""BPTT length: milliseconds per batch with longer and longer blocks, at the same number of tokens (v1 Figure 9).

A batch is a training block of M steps of --tokens / M streams: forward pass, loss and backward pass, with a full memory
carried in, without embeddings, output layer and optimizer. The Transformer computes all tokens at once; the Feedback
Transformer takes M steps, one after the other, each for fewer streams.
"""

import argparse
from functools import partial

from fb_fairseq.command_line import add_overwrite
from fb_fairseq.drawing import Panel, check_figure, colors, draw_figure, draw_points
from fb_fairseq.errors import UserError
from fb_fairseq.papers.benchmark.measure import interleaved_medians, table
from fb_fairseq.papers.benchmark.models import Case, add_number, add_repeats
from fb_fairseq.papers.benchmark.train import TrainingStep, training_step, warm_up

NAME = "benchmark-bptt"  # as the writer of files
CASES = {
    "Feedback, shared": Case("feedback", {"memory_projections": "shared"}),
    "Feedback, per-layer": Case("feedback", {"memory_projections": "per-layer"}),
    "Transformer": Case("transformer", {}),
}
Times = dict[str, list[float]]  # milliseconds for each block length, by model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    text = "BPTT lengths M to measure, in steps (default: 32 64 128 256, the papers' on WikiText-103)"
    parser.add_argument("--blocks", nargs="+", type=int, default=[32, 64, 128, 256], metavar="M", help=text)
    add_number(parser, "--tokens", 2048, "tokens of a batch; a multiple of every M")
    add_repeats(parser)
    parser.add_argument("--out", metavar="FILE", help="draw a figure: .png, .pdf or .svg")
    add_overwrite(parser)


def run(args: argparse.Namespace) -> dict:
    """Measure each model with each block length."""
    for block in args.blocks:
        if args.tokens % block:
            raise UserError(f"--tokens {args.tokens}: is not a multiple of --blocks {block}; give one that is")
    if args.out:
        check_figure("--out", args.out, NAME, args.overwrite)
    milliseconds: Times = {name: [] for name in CASES}
    # On a CPU all take turns. On a GPU only one block length's models, whose captured graphs keep memory.
    for blocks in [[block] for block in args.blocks] if args.device.startswith("cuda") else [args.blocks]:
        steps = [warm_step(case, args, block) for block in blocks for case in CASES.values()]
        times = iter(interleaved_medians(steps, args.device, args.repeats))
        for _ in blocks:
            for name in CASES:
                milliseconds[name].append(round(1e3 * next(times), 3))
        del steps
    rows = [
        [f"M = {block}, {args.tokens // block} streams", *times]
        for block, *times in zip(args.blocks, *milliseconds.values())
    ]
    table(["ms per batch", *CASES], rows)
    if args.out:
        draw = partial(draw_times, blocks=args.blocks, milliseconds=milliseconds, tokens=args.tokens)
        draw_figure(args.out, [Panel(draw)], command=NAME)
    return {"milliseconds": milliseconds}


def warm_step(case: Case, args: argparse.Namespace, block: int) -> TrainingStep:
    """A training step on blocks of this length; on a GPU repeated until its graph is captured."""
    sizes = argparse.Namespace(**{**vars(args), "block": block, "batch_size": args.tokens // block})
    step = training_step(case, sizes)
    warm_up(step, args.device)
    return step


def draw_times(axes, blocks: list[int], milliseconds: Times, tokens: int) -> None:
    """Draw milliseconds per batch against the block length."""
    color = colors(milliseconds)
    for name, times in milliseconds.items():
        lengths, sorted_times = zip(*sorted(zip(blocks, times)))
        draw_points(axes, lengths, [[time] for time in sorted_times], name, color[name])
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(blocks)), list(map(str, sorted(set(blocks)))))
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set(xlabel="BPTT length M (steps)", ylabel=f"time per batch of {tokens:,} tokens (ms)")
