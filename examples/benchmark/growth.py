"""How training speed changes with the span S, the layers L, the width D and the streams B; each beside the Transformer.

    python examples/benchmark/growth.py --out growth.jsonl [--figure growth.png]

Measures what ``fb-fairseq benchmark train`` measures, with its options: one of the four sizes at a time, the
others as the options say. Sizes that --out holds already are not measured again, so an interrupted run goes on where
it stopped. Needs matplotlib for the figure.
"""

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

import torch

from fb_fairseq.command_line import CommandParser
from fb_fairseq.drawing.figure import Panel, check_figure, draw_figure
from fb_fairseq.drawing.marks import draw_points
from fb_fairseq.drawing.models import styles
from fb_fairseq.hardware import hardware
from fb_fairseq.papers.benchmark import command, comparisons, train
from fb_fairseq.papers.benchmark.timing import measure

NAME = "growth"  # as the writer of files
SIZES = {
    "span": [32, 64, 128, 256, 512, 1024],
    "layers": [2, 4, 6, 8, 12],
    "embed_dim": [64, 128, 256, 512],
    "batch_size": [1, 2, 4, 8, 16, 32, 64],
}
LABELS = {"span": "span S (steps)", "layers": "layers L", "embed_dim": "width D (F = 4 D)", "batch_size": "streams B"}
MODELS = {
    "cpp": "Feedback Transformer, C++ loop",
    "reference": "Feedback Transformer, reference loop",
    "transformer": "Transformer",
}


def parse() -> argparse.Namespace:
    """The options, checked as those of ``benchmark train``. Exits with an error message if they are invalid."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--out", required=True, metavar="FILE", help="results, one JSON line per setting")
    parser.add_argument("--figure", metavar="FILE", help="a picture of these results")
    own, rest = parser.parse_known_args()
    args = command.parse(["train", *rest])
    args.out, args.figure = own.out, own.figure
    if args.figure:
        with parser.one_line_errors():
            check_figure("--figure", args.figure, NAME)
    return args


def tokens_per_second(args: argparse.Namespace) -> dict[str, float]:
    """The speed of each model."""
    cases = comparisons.loops(argparse.Namespace(device="cpu", dtype="fp32"))
    steps = [partial(train.training_step, cases[name], args) for name in MODELS]
    speeds = measure(steps, args.device, args.repeats, lambda step, seconds: round(step.words / seconds, 1))
    return dict(zip(MODELS, speeds))


def settings(args: argparse.Namespace) -> list[dict]:
    """The sizes to measure, each with the name of the one that varies."""
    found = []
    for name, values in SIZES.items():
        for value in values:
            sizes = {key: getattr(args, key) for key in (*SIZES, "heads", "ffn_dim", "block", "threads", "dtype")}
            sizes[name] = value
            if name == "embed_dim":
                sizes.update(ffn_dim=4 * value, heads=max(1, value // 64))
            found.append({"varies": name, **sizes})
    return found


def results_of(out: Path, wanted: list[dict]) -> list[dict]:
    """The results in a file that are of the wanted settings: not of other options, or of an earlier version, which had
    other loops.
    """
    found = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return [r for r in found if r["setting"] in wanted and r["tokens_per_second"].keys() == MODELS.keys()]


def draw_speed(axes, results: list[dict], size: str) -> None:
    """Tokens per second against one of the sizes.

    Args:
        axes: to draw on.
        results: with the speed of each of ``MODELS``.
        size: a name in ``SIZES``.
    """
    own = sorted((r for r in results if r["setting"]["varies"] == size), key=lambda r: r["setting"][size])
    style = styles(MODELS.values())
    for model, name in MODELS.items():
        speeds = [[r["tokens_per_second"][model]] for r in own]
        draw_points(axes, [r["setting"][size] for r in own], speeds, name, *style[name])
    axes.set(xscale="log", yscale="log", xlabel=LABELS[size], ylabel="training (tokens/s)")
    axes.set_xticks(SIZES[size], list(map(str, SIZES[size])))
    axes.minorticks_off()


def main() -> None:
    """Run the command: one line for each setting, appended to --out."""
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    out = Path(args.out)
    wanted = settings(args)
    results = results_of(out, wanted)
    measured = [r["setting"] for r in results]
    for setting in wanted:
        if setting in measured:
            continue
        speeds = tokens_per_second(argparse.Namespace(**{**vars(args), **setting}))
        result = {"tokens_per_second": speeds, "setting": setting, "hardware": hardware(args.device)}
        with open(out, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        results.append(result)
        name = setting["varies"]
        ratio = speeds["cpp"] / speeds["transformer"]
        print(f"{LABELS[name]} = {setting[name]}: {speeds}, C++ / Transformer {ratio:.2f}", flush=True)
    if args.figure:
        panels = [Panel(partial(draw_speed, results=results, size=size)) for size in SIZES]
        draw_figure(args.figure, panels, command=NAME)


if __name__ == "__main__":
    main()
