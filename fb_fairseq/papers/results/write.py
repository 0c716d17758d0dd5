"""Write the result of a run, OUT/RUN.json: what it is, as given, its settings, and what its files say.

python -m fb_fairseq.papers.results.write OUT/RUN --recipe='"copy"' --seed=1 … [--after=RUN …]
python -m fb_fairseq.papers.results.write OUT      # collect those of all runs, OUT/*.json, in OUT/results.json
"""

import glob
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write
from fb_fairseq.papers.results.record import HERE, MARK, Entry, options_of, read_record
from fb_fairseq.papers.results.runs import read

PATTERNS = {  # of measures in logs
    "bits": r"\(base 2\): ([\d.]+),",
    "tokens": r"Evaluated ([\d,]+) tokens",
    "test_bytes": r"(?m)^test: \d+ documents?, (\d+) bytes",
    "parameters": r"shared model params: ([\d,]+)",
    "num_updates": r'"num_updates": "(\d+)"',
    "attention_span": r"attention_span['\"]?[=:] ?(\d+)",
    "decoded_tokens_per_second": r"Translated [\d,]+ sentences .* sentences/s, ([\d.]+) tokens/s\)",
}
VALIDATION = re.compile(r"\| valid \| (\{.*\})$", re.MULTILINE)
DAY = 86400  # seconds


def measures(name: str, path: str) -> list[float]:
    """All values of a measure in a log."""
    return [float(value.replace(",", "")) for value in re.findall(PATTERNS[name], read(path))]


def last(name: str, path: str) -> float:
    """The last value of a measure in a log."""
    found = measures(name, path)
    if not found:
        raise UserError(f"{path}: has no {name.replace('_', ' ')}; delete it, and run the recipe again")
    return found[-1]


def available_context(tokens: float, streams: int, span: float) -> float:
    """Mean share of the attention span, in %, that a token can look back on: each stream starts with an empty
    memory."""
    length = tokens // streams
    filling = min(length, span)
    return 100 * (filling * (filling - 1) / 2 + (length - filling) * span) / (length * span)


def trained(folder: str, runs: Iterable[str]) -> list[Entry]:
    """The trainings of runs in a folder, as they are recorded in it or in the one above it."""
    out = folder if os.path.exists(os.path.join(folder, MARK)) else os.path.dirname(folder)
    record = read_record(out)
    starts = [f"{HERE}{folder[len(out) :]}/{run}/" for run in runs]
    steps = record["steps"].items() if record else ()
    return [entry for start in starts for name, entry in steps if name.startswith(start) and "settings" in entry]


def result_of(path: str, identity: dict[str, Any], before: Sequence[str]) -> dict[str, Any]:
    """The result of the run OUT/RUN. ``before``: the runs whose time counts, if they are not this one alone."""
    out, run = os.path.split(path)
    entries = trained(out, [run])
    if not entries:
        raise UserError(f"{path}: was not trained by a recipe")
    entry, runs, result = entries[0], before or [run], dict(identity)
    result.update(settings=entry["settings"], hardware=entry["hardware"], commit=entry["commit"])
    result["seconds"] = round(sum(entry["seconds"] for entry in trained(out, runs)))
    for name in ("parameters", "num_updates"):
        found = [int(values[-1]) for each in runs if (values := measures(name, f"{os.path.join(out, each)}.log"))]
        if found:
            result[name] = found[-1] if name == "parameters" else sum(found)
    for name, split in (("dev", "valid"), ("test", "test")):
        log = f"{path}.{split}.eval"
        if os.path.exists(log):
            bits = last("bits", log)
            result.update({f"{name}_bits_per_token": bits, f"{name}_perplexity": round(2**bits, 3)})
            spans = measures("attention_span", f"{path}.log")
            if split == "test" and spans:
                context = available_context(last("tokens", log), identity["test_streams"], spans[-1])
                result["test_context"] = round(context, 1)
    validated = [json.loads(line) for line in VALIDATION.findall(read(f"{path}.log"))]
    for name in ("accuracy", "scores", "measured"):  # in JSON
        if os.path.exists(f"{path}.{name}"):
            result.update(json.loads(read(f"{path}.{name}")))
    if "accuracy" in result:
        result["dev_accuracy"] = max((float(measured["valid_accuracy"]) for measured in validated), default=None)
    if "dev_score" in result:  # of a translation; the loss of the best checkpoint, which may be smoothed, is lowest
        best = min(validated, key=lambda measured: float(measured["valid_loss"]))
        result["dev_nll"] = float(best.get("valid_nll_loss", best["valid_loss"]))
        result["decoded_tokens_per_second"] = last("decoded_tokens_per_second", f"{path}.translations.log")
    log = read(os.path.join(path, "log.jsonl")).splitlines()
    if log:  # of an agent; the papers' measure is the mean over the last 500 episodes of training (v3 §6.1)
        result["training_reward"] = json.loads(log[-1]).get("reward")
    return result


def main() -> None:
    """Run the command."""
    parser = CommandParser(prog="write", description=__doc__)
    parser.add_argument("path", metavar="OUT/RUN")
    args, given = parser.parse_known_args(sys.argv[1:])
    with parser.one_line_errors():
        if not given:
            found = {}
            for path in sorted(glob.glob(os.path.join(glob.escape(args.path), "*.json"))):
                result = json.loads(read(path))
                if "recipe" in result:
                    found[os.path.basename(path)[: -len(".json")]] = result
            path = os.path.join(args.path, "results.json")
        else:
            pairs = list(options_of(given))
            before = [value for name, value in pairs if name == "after"]
            identity = {name: json.loads(value) for name, value in pairs if name != "after"}
            found, path = result_of(args.path, identity, before), f"{args.path}.json"
            shown = {name: value for name, value in found.items() if name not in {*identity, "settings", "commit"}}
            print(", ".join(f"{name} {value}" for name, value in shown.items()))
        with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
