"""The results of a language model, RUN.json, from the logs of its evaluation and training.

RUN.valid.eval and RUN.eval are the outputs of fairseq-eval-lm on the validation and the test split, RUN.seconds and
RUN.hardware the time of training and what it ran on.
"""

import json
import os
import re
from typing import Dict, Sequence, Tuple

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.results import training_cost
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.training import parameters_of

BITS = re.compile(r"Loss \(base 2\): ([\d.]+),")
TOKENS = re.compile(r"Evaluated ([\d,]+) tokens")
FINETUNED = "-finetuned"


def read_evaluation(path: str) -> Tuple[float, int]:
    """Bits per token, and the number of tokens, in the output of fairseq-eval-lm.

    Raises:
        UserError: there are none.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    bits, tokens = BITS.findall(text), TOKENS.findall(text)
    if not bits or not tokens:
        raise UserError(f"{path}: has no result; run step evaluate again")
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


def training_days(runs: Sequence[str]) -> Dict[str, float]:
    """``training_days`` of runs that follow one another; empty if the time of one is not known."""
    seconds = [training_cost(run).get("seconds") for run in runs]
    return {} if None in seconds else {"training_days": sum(seconds) / 86400}


def write_results(
    shell: Shell, run: str, identity: Dict[str, object], streams: int, before: Sequence[str] = ()
) -> None:
    """Write RUN.json, and say what is in it.

    Args:
        shell: of the run.
        run: the folder of its checkpoints.
        identity: which run it is: the recipe, the model, its number of layers and seed, ….
        streams: those of the evaluation.
        before: the runs that this one starts from; ``training_days`` include theirs, ``seconds`` are its own.

    Raises:
        UserError: the evaluation has left no result.
    """
    from fb_fairseq.commands.plot.checkpoints import load_checkpoint, model_options  # imports torch

    result: Dict[str, object] = {**identity, "finetuned": run.endswith(FINETUNED)}
    for name, path in (("dev", f"{run}.valid.eval"), ("test", f"{run}.eval")):
        bits, tokens = read_evaluation(path)
        result.update({f"{name}_bits_per_token": bits, f"{name}_perplexity": round(2**bits, 3)})
    span = model_options(load_checkpoint(f"{run}/checkpoint_best.pt")).get("attention_span")
    if span:
        result["test_context"] = round(available_context(tokens, streams, span), 1)
    result["parameters"] = parameters_of(run)
    result.update(training_cost(run))
    result.update(training_days([*before, run]))
    with open(f"{run}.json", "w", encoding="utf-8") as file:
        json.dump(result, file)
    context = f", with {result['test_context']} % of the attention span on average" if span else ""
    shell.say(
        f"== {os.path.basename(run)}: {result['dev_bits_per_token']} bits per token on the validation split, "
        f"{result['test_bits_per_token']} on the test split{context}; {result['parameters']:,} parameters, "
        f"{result.get('seconds')} s"
    )
