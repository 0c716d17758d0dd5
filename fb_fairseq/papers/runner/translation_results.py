"""The results of a translation model, RUN.json, from its scores and logs.

RUN.score has the scores on the test set (python -m fb_fairseq score), RUN.dev the best score on the validation set,
RUN.tuned the options with which it was reached, RUN.seconds and RUN.hardware the time of training and what it ran on,
and RUN.test and RUN.test.err are the output of fairseq-generate.
"""

import json
import os
import re
from typing import Dict

from fb_fairseq.papers.runner.results import training_cost
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.training import parameters_of

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


def write_results(shell: Shell, run: str, identity: Dict[str, object]) -> None:
    """Write RUN.json, and say what is in it.

    Args:
        shell: of the run.
        run: the beginning of its files' names.
        identity: which run it is: the recipe, the model, its number of layers and seed, ….
    """
    result: Dict[str, object] = {**identity, **json.loads(read(f"{run}.score"))}
    result["parameters"] = parameters_of(run)
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
    with open(f"{run}.json", "w", encoding="utf-8") as file:
        json.dump(result, file)
    shell.say(f"== {os.path.basename(run)}: {json.dumps(result)}")
