"""Write the results of a run, RUN.json, from its scores and logs. (The recipes call this.)

    python examples/translation/result.py RUN --recipe NAME --small yes|no --model NAME --layers N --seed N \
        --projections NAME --parameters N

RUN.score has the scores on the test set (python -m fb_fairseq score), RUN.dev the best score on the validation set,
RUN.tuned the options with which it was reached, RUN.seconds and RUN.hardware the time of training and what it ran on,
and RUN.test and RUN.test.err are the output of fairseq-generate.
"""

import argparse
import json
import os
import re
from typing import Dict

from fb_fairseq.reproduction.compare.runs import training_cost

VALIDATION = re.compile(r"\| valid \| (\{.*\})$", re.MULTILINE)
SPEED = re.compile(r"Translated [\d,]+ sentences .* \([\d.]+ sentences/s, ([\d.]+) tokens/s\)")


def read(path: str) -> str:
    """A file's text; empty if it does not exist."""
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def best_nll(log: str) -> float:
    """The validation nll, in bits per token, where the loss, which may be smoothed, is lowest (the best checkpoint)."""
    best = min(map(json.loads, VALIDATION.findall(log)), key=lambda measured: float(measured["valid_loss"]))
    return float(best.get("valid_nll_loss", best["valid_loss"]))  # criterion cross_entropy logs only one of them


def main(argv=None) -> None:
    """Write the file, and print its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    for name in ("recipe", "small", "model", "projections"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("layers", "seed", "parameters"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args(argv)
    run = args.run
    result: Dict[str, object] = {
        "recipe": args.recipe,
        "small": args.small == "yes",
        "model": args.model,
        "layers": args.layers,
        "seed": args.seed,
    }
    if args.projections:
        result["projections"] = args.projections
    result.update(json.loads(read(f"{run}.score")))
    result["parameters"] = args.parameters
    result["dev_nll"] = best_nll(read(f"{run}.log"))
    tuned = read(f"{run}.tuned").split()
    options = dict(zip(tuned[::2], tuned[1::2]))
    for option, name in (("--lenpen", "lenpen"), ("--max-len-b", "max_len_b"), ("--min-len", "min_len")):
        if option in options:
            result[name] = float(options[option])
    if os.path.exists(f"{run}.dev"):
        result["dev_score"] = float(read(f"{run}.dev"))
    result.update(training_cost(run))
    speeds = SPEED.findall(read(f"{run}.test.err") + read(f"{run}.test"))
    result["decoded_tokens_per_second"] = float(speeds[-1]) if speeds else None
    with open(f"{run}.json", "w") as file:
        json.dump(result, file)
    print(f"== {os.path.basename(run)}: {json.dumps(result)}")


if __name__ == "__main__":
    main()
