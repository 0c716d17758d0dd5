"""Write the result of a run, OUT/RUN.json: what it is, as given, its settings, and what its files say.

python -m fb_fairseq.papers.results.write OUT/RUN --recipe='"copy"' --seed=1 …
python -m fb_fairseq.papers.results.write OUT      # collect those of all runs, OUT/*.json, in OUT/results.json
"""

import glob
import json
import os
import re
import sys
from typing import Any

from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write
from fb_fairseq.papers.results.origins import options_of, trainings
from fb_fairseq.papers.results.record import HERE, MARK, read_record
from fb_fairseq.papers.results.words import HEADINGS

PATTERNS = {  # of measures in logs
    "bits": r"\(base 2\): ([\d.]+),",
    "tokens": r"Evaluated ([\d,]+) tokens",
    "test_bytes": r"(?m)^test: \d+ documents?, (\d+) bytes",
    "parameters": r"shared model params: ([\d,]+)",
    "num_updates": r'"num_updates": "(\d+)"',
    "decoded_tokens_per_second": r"Translated [\d,]+ sentences .* sentences/s, ([\d.]+) tokens/s\)",
}
VALIDATION = re.compile(r"\| valid \| (\{.*\})$", re.MULTILINE)
DAY = 86400  # seconds


def read(path: str) -> str:
    """A file's text; empty if it does not exist."""
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def measures(name: str, path: str) -> list[float]:
    """All values of a measure in a log."""
    return [float(value.replace(",", "")) for value in re.findall(PATTERNS[name], read(path))]


def last(name: str, path: str) -> float:
    """The last value of a measure in a log."""
    found = measures(name, path)
    if not found:
        raise UserError(f"{path}: has no {name.replace('_', ' ')}; delete it, and run the recipe again")
    return found[-1]


def result_of(path: str, identity: dict[str, Any]) -> dict[str, Any]:
    """The result of a run: ``identity``, its training, and what is ``measured``.

    Args:
        path: OUT/RUN. The training is recorded in OUT, or in the folder above it.
        identity: what the run is, such as its recipe and model.
    """
    folder = os.path.dirname(path)
    out = folder if os.path.exists(os.path.join(folder, MARK)) else os.path.dirname(folder)
    record = read_record(out)
    run = HERE + path[len(out) :]
    steps = record["steps"] if record else {}
    own = [name for name, entry in steps.items() if os.path.dirname(name) == run and "settings" in entry]
    if not own:
        raise UserError(f"{path}: was not trained by a recipe; give a run in the output folder of one")
    entry = steps[own[0]]
    result = dict(identity)
    chain = list(trainings(own[0], steps))
    result.update(settings=entry["settings"], hardware=entry["hardware"], commit=entry["commit"])
    result["training_days"] = sum(steps[name]["seconds"] for name in chain) / DAY
    # On a toy task, what a model starts from are the stages of its curriculum, which count as its own training.
    counted = chain if os.path.exists(f"{path}.accuracy") else own
    result["seconds"] = round(sum(steps[name]["seconds"] for name in counted))
    logs = [f"{out}{os.path.dirname(name)[len(HERE) :]}.log" for name in counted]
    for name in ("parameters", "num_updates"):
        found = [int(values[-1]) for log in logs if (values := measures(name, log))]
        if found:
            result[name] = found[0] if name == "parameters" else sum(found)
    return {**result, **measured(path)}


def measured(path: str) -> dict[str, Any]:
    """The quality and speed of a run by its files, OUT/RUN.*; the names are those of ``HEADINGS``, and others."""
    result: dict[str, Any] = {}
    for name, split in (("dev", "valid"), ("test", "test")):
        log = f"{path}.{split}.eval"
        if os.path.exists(log):
            bits = last("bits", log)
            result.update({f"{name}_bits_per_token": bits, f"{name}_perplexity": round(2**bits, 3)})
    for name in ("accuracy", "scores", "measured"):  # in JSON
        if text := read(f"{path}.{name}"):
            result.update(json.loads(text))
    result.pop("written_by", None)
    validated = [json.loads(line) for line in VALIDATION.findall(read(f"{path}.log"))]
    if "accuracy" in result:
        result["dev_accuracy"] = max((float(entry["valid_accuracy"]) for entry in validated), default=None)
    if "dev_score" in result:  # of a translation; the loss of the best checkpoint, which may be smoothed, is lowest
        best = min(validated, key=lambda entry: float(entry["valid_loss"]))
        result["dev_nll"] = float(best.get("valid_nll_loss", best["valid_loss"]))
        speeds = [measures("decoded_tokens_per_second", f"{path}.{log}") for log in ("translations.log", "test")]
        result["decoded_tokens_per_second"] = next((found[-1] for found in speeds if found), None)
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
            paths = glob.glob(os.path.join(glob.escape(args.path), "*.json"))
            results = {os.path.basename(path)[: -len(".json")]: json.loads(read(path)) for path in paths}
            found = {name: result for name, result in sorted(results.items()) if "recipe" in result}
            path = os.path.join(args.path, "results.json")
        else:
            identity = {name: json.loads(value) for name, value in options_of(given)}
            found = result_of(args.path, identity)
            path = f"{args.path}.json"
            print(", ".join(f"{name} {found[name]}" for name in HEADINGS if name in found))
        with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
