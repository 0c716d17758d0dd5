"""What the options of a Feedback Transformer cost: training speed, training memory, and what is carried or kept.

    python examples/benchmark/choices.py [--repeats 5] [--out choices.jsonl]

One option is changed at a time. All settings take turns, so speeds are comparable within one run only. Prints a table
in Markdown; docs/choosing-options.md shows one.
"""

import argparse
import json
import os
import sys
from functools import partial

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

import torch

from fb_fairseq.hardware import hardware
from fb_fairseq.papers.benchmark.models import Case
from fb_fairseq.papers.benchmark.options import add_number
from fb_fairseq.papers.benchmark.timing import measure
from fb_fairseq.papers.benchmark.train import measured, training_step
from fb_fairseq.papers.benchmark.work import Work

SIZES = dict(layers=4, embed_dim=256, heads=4, ffn_dim=1024, span=128, batch_size=8, block=64)
SHARED = {"memory_projections": "shared"}
PER_LAYER = {"memory_projections": "per-layer"}
DEFAULT = "the default: shared projections, S = 128, M = 64, 8 streams"
CHOICES = {
    DEFAULT: Case("feedback", SHARED),
    "`relative_transformer_lm`, the Transformer of the same size": Case("transformer"),
    "`--memory-projections per-layer`": Case("feedback", PER_LAYER),
    "`--attention-span 32`": Case("feedback", SHARED, {"span": 32}),
    "`--attention-span 512`": Case("feedback", SHARED, {"span": 512}),
    "`--tokens-per-sample 16`": Case("feedback", SHARED, {"block": 16}),
    "`--tokens-per-sample 256`": Case("feedback", SHARED, {"block": 256}),
    "`--batch-size 2`": Case("feedback", SHARED, {"batch_size": 2}),
    "`--batch-size 32`": Case("feedback", SHARED, {"batch_size": 32}),
    "`--decoder-layers 2`": Case("feedback", SHARED, {"layers": 2}),
    "`--decoder-layers 8`": Case("feedback", SHARED, {"layers": 8}),
    "`--checkpoint-activations`": Case("feedback", {**SHARED, "checkpoint_activations": True}),
    "`--step-loop reference` (no C++ compiler, or bf16)": Case("feedback", {**SHARED, "step_loop": "reference"}),
}


def result(step: Work, seconds: float) -> dict[str, float]:
    """What was measured of a training step, and the bytes of one stream's memory: carried, and in decoding."""
    found = measured("cpu", step, seconds)
    ring = step.model.new_ring()
    with torch.no_grad():
        for _ in range(step.model.options.attention_span):
            step.model.run_step(torch.zeros(1, SIZES["embed_dim"]), ring)
    return {**found, "carried_bytes": step.state() // step.forward().shape[1], "decoding_bytes": ring.nbytes()}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_number(parser, "--repeats", 5, "timed runs per setting")
    add_number(parser, "--threads", 1, "CPU threads")
    parser.add_argument("--out", metavar="FILE", help="add the results to this file, as a JSON line")
    return parser.parse_args()


def main() -> None:
    """Measure all settings, and print the table."""
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    sizes = argparse.Namespace(**SIZES, device="cpu", dtype="fp32")
    makers = [partial(training_step, case, sizes) for case in CHOICES.values()]
    found = dict(zip(CHOICES, measure(makers, "cpu", args.repeats, result)))
    base = found[DEFAULT]["tokens_per_second"]
    print("| setting | training speed | training memory | carried per stream | kept per stream in decoding |")
    print("|---|---:|---:|---:|---:|")
    for name, r in found.items():
        sizes = f"{r['carried_bytes'] / 1e3:,.0f} KB | {r['decoding_bytes'] / 1e3:,.0f} KB"
        print(f"| {name} | {r['tokens_per_second'] / base:.2f} | {r['peak_bytes'] / 1e6:,.0f} MB | {sizes} |")
    if args.out:
        line = {"results": found, "sizes": SIZES, "threads": args.threads, "hardware": hardware("cpu")}
        with open(args.out, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
