"""Write the results of a run, RUN.json, from the logs of its evaluation and training. (The recipes call this.)

    python examples/language_modeling/result.py RUN --recipe NAME --small yes|no --model NAME --layers N --seed N \
        --streams N --parameters N

RUN.valid.eval and RUN.eval are the outputs of fairseq-eval-lm on the validation and the test split, RUN.seconds and
RUN.hardware the time of training and what it ran on.
"""

import argparse
import json
import os
import re
import sys
from typing import Dict, Tuple

from fb_fairseq.commands.plot.checkpoints import load_checkpoint, model_options
from fb_fairseq.reproduction.compare.runs import training_cost

BITS = re.compile(r"Loss \(base 2\): ([\d.]+),")
TOKENS = re.compile(r"Evaluated ([\d,]+) tokens")
FINETUNED = "-finetuned"


def read_evaluation(path: str) -> Tuple[float, int]:
    """Bits per token, and the number of tokens, in the output of fairseq-eval-lm."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    bits, tokens = BITS.findall(text), TOKENS.findall(text)
    if not bits or not tokens:
        sys.exit(f"{path}: has no result; run step evaluate again")
    return float(bits[-1]), int(tokens[-1].replace(",", ""))


def available_context(tokens: int, streams: int, span: int) -> float:
    """Mean share of the attention span, in %, that a token can look back on: each stream starts with an empty memory.

    Args:
        tokens: those of the split.
        streams: the number of streams that it is divided into.
    """
    length = tokens // streams
    filling = min(length, span)
    return 100 * (filling * (filling - 1) / 2 + (length - filling) * span) / (length * span)


def main(argv=None) -> None:
    """Write the file, and print its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    for name in ("recipe", "small", "model", "layers"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("seed", "streams", "parameters"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args(argv)
    run = args.run
    result: Dict[str, object] = {
        "recipe": args.recipe,
        "small": args.small == "yes",
        "model": args.model,
        "layers": int(args.layers) if args.layers.isdecimal() else None,
        "seed": args.seed,
        "finetuned": run.endswith(FINETUNED),
    }
    for name, path in (("dev", f"{run}.valid.eval"), ("test", f"{run}.eval")):
        bits, tokens = read_evaluation(path)
        result.update({f"{name}_bits_per_token": bits, f"{name}_perplexity": round(2**bits, 3)})
    span = model_options(load_checkpoint(f"{run}/checkpoint_best.pt")).get("attention_span")
    if span:
        result["test_context"] = round(available_context(tokens, args.streams, span), 1)
    result["parameters"] = args.parameters
    result.update(training_cost(run))
    if "seconds" in result:
        result["training_days"] = result["seconds"] / 86400
    with open(f"{run}.json", "w") as file:
        json.dump(result, file)
    context = f", with {result['test_context']} % of the attention span on average" if span else ""
    print(
        f"== {os.path.basename(run)}: {result['dev_bits_per_token']} bits per token on the validation split, "
        f"{result['test_bits_per_token']} on the test split{context}; {args.parameters:,} parameters, "
        f"{result.get('seconds')} s"
    )


if __name__ == "__main__":
    main()
