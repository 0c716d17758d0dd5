"""What the options of a Feedback Transformer cost: training speed, training memory, and what is carried or kept.

    python examples/benchmark/choices.py [--repeats 5] [--out choices.jsonl]

One option is changed at a time. All settings take turns, so speeds are comparable within one run only. Prints a table
in Markdown; docs/choosing-options.md shows one.
"""

import argparse
import json
import os
import sys
from typing import Any, NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

import torch

from fb_fairseq.hardware import hardware
from fb_fairseq.papers.benchmark.measure import interleaved_medians, peak_bytes
from fb_fairseq.papers.benchmark.models import Case, block_with_full_memory, build_model
from fb_fairseq.papers.benchmark.train import training_step

SIZES = dict(layers=4, embed_dim=256, heads=4, ffn_dim=1024, span=128, batch_size=8, block=64)


class Choice(NamedTuple):
    """A setting: its name, the model, its options, and the sizes that differ from ``SIZES``."""

    name: str
    model: str = "feedback"
    options: dict[str, Any] = {}
    sizes: dict[str, int] = {}


SHARED, PER_LAYER = {"memory_projections": "shared"}, {"memory_projections": "per-layer"}
CHOICES = [
    Choice("the default: shared projections, S = 128, M = 64, 8 streams", options=SHARED),
    Choice("`relative_transformer_lm`, the Transformer of the same size", "transformer"),
    Choice("`--memory-projections per-layer`", options=PER_LAYER),
    Choice("`--attention-span 32`", options=SHARED, sizes={"span": 32}),
    Choice("`--attention-span 512`", options=SHARED, sizes={"span": 512}),
    Choice("`--tokens-per-sample 16`", options=SHARED, sizes={"block": 16}),
    Choice("`--tokens-per-sample 256`", options=SHARED, sizes={"block": 256}),
    Choice("`--batch-size 2`", options=SHARED, sizes={"batch_size": 2}),
    Choice("`--batch-size 32`", options=SHARED, sizes={"batch_size": 32}),
    Choice("`--decoder-layers 2`", options=SHARED, sizes={"layers": 2}),
    Choice("`--decoder-layers 8`", options=SHARED, sizes={"layers": 8}),
    Choice("`--step-loop-recompute`", options={**SHARED, "step_loop_recompute": True}),
    Choice("`--step-loop reference` (no C++ compiler, or bf16)", options={**SHARED, "step_loop": "reference"}),
]


def measure(choice: Choice, threads: int) -> dict[str, Any]:
    """The setting's training step, and what can be counted without a clock: bytes."""
    args = argparse.Namespace(**{**SIZES, **choice.sizes}, device="cpu", dtype="fp32", threads=threads)
    step = training_step(Case(choice.model, choice.options), args)
    step()  # buffers that are reused count too
    step.model.zero_grad(set_to_none=True)
    model = build_model(choice.model, args, **choice.options)
    _, state = block_with_full_memory(model, args)
    with torch.no_grad():
        ring = model.ring_after(state)
    return {
        "step": step,
        "tokens": args.batch_size * args.block,
        "peak_bytes": peak_bytes(step, "cpu"),
        "carried_bytes": state.memory_KCBD.nbytes // args.batch_size,
        "decoding_bytes": ring.nbytes() // args.batch_size,
    }


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="timed runs per setting (default: 5)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads (default: 1)")
    parser.add_argument("--out", metavar="FILE", help="add the results to this file, as a JSON line")
    return parser.parse_args()


def main() -> None:
    """Measure all settings, and print the table."""
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    found = {choice.name: measure(choice, args.threads) for choice in CHOICES}
    times = interleaved_medians([result.pop("step") for result in found.values()], "cpu", args.repeats)
    for result, time in zip(found.values(), times):
        result["tokens_per_second"] = round(result["tokens"] / time, 1)
    base = found[CHOICES[0].name]["tokens_per_second"]
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
