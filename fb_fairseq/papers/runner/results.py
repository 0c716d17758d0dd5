"""The results of runs, RUN.json, and of recipes, results.json; runs that differ only in their seed are summarised."""

import glob
import json
import math
import os
import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.shell import Shell, read

# What identifies a run, but for its seed; everything else in its results is a measurement.
IDENTITY = tuple("recipe small model layers finetuned projections data attention_span span updates".split())

# Measurements, in the order of the columns.
HEADINGS = {
    "dev_bits_per_token": "dev bits per token",
    "test_bits_per_token": "test bits per token",
    "dev_perplexity": "dev perplexity",
    "test_perplexity": "test perplexity",
    "test_context": "test context, % of the span",
    "dev_accuracy": "dev labels right, %",
    "accuracy": "labels right, %",
    "sequence_accuracy": "sequences right, %",
    "sacrebleu": "sacreBLEU",
    "tokenized_bleu": "tokenised BLEU",
    "compound_split_bleu": "compound-split BLEU",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "dev_nll": "dev nll, bits",
    "dev_score": "dev score",
    "decoded_tokens_per_second": "tokens/s",
    "success": "success, %",
    "reward": "reward",
}

LARGEST = 1e100  # of a measurement: a standard deviation squares it
UPDATES = re.compile(r'"num_updates": "(\d+)"')
PARAMETERS = re.compile(r"shared model params: ([\d,]+)")


class Group(NamedTuple):
    """Runs of the same setting with different seeds."""

    identity: dict[str, object]  # the values of ``IDENTITY`` that the results have
    runs: list[dict]  # the results of each seed

    def values(self, metric: str) -> list[float]:
        """The measurements of a metric; empty if no run has it. Those of a run that diverged may be NaN."""
        found = [run.get(metric) for run in self.runs]
        return [as_float(value) for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)]

    def matches(self, wanted: dict[str, object]) -> bool:
        """Whether all wanted values are the group's; of ``data``, the command line's words, all must occur."""

        def fits(name: str, value: object) -> bool:
            own = self.identity.get(name)
            return f" {value} " in f" {own} " if name == "data" else own == value

        return all(fits(*item) for item in wanted.items())


def read_runs(out: str) -> list[dict]:
    """The results of all runs in the output folder of a recipe, or in its subfolders (one per seed, say), each with the
    ``path`` of its files."""
    own = os.path.join(out, "results.json")
    paths = [own] if os.path.exists(own) else sorted(glob.glob(os.path.join(glob.escape(out), "*", "results.json")))
    if not paths:
        raise UserError(f"{out}: has no results.json; give the output folder of a recipe whose models are evaluated")
    runs: list[dict] = []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                results = json.load(file)
            found = dict(enumerate(results["all"])) if "all" in results else results  # "all": an earlier version's
            for name, run in found.items():
                path_of_run = os.path.join(os.path.dirname(path), str(name))
                runs.append({**run, "model": run.get("model", run.get("agent")), "path": path_of_run})
            hash(tuple(run.get(name) for run in runs for name in (*IDENTITY, "hardware")))  # no lists, no dictionaries
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            raise UserError(f"{path}: cannot be read; run the recipe's last step again") from None
    if not runs or any("recipe" not in run or run["model"] is None for run in runs):
        raise UserError(f"{out}: its results do not name their recipe; run the recipe again")
    return runs


def training_cost(run: str) -> dict[str, object]:
    """What the recipes record beside a run, as far as it exists: ``seconds`` of training (RUN.seconds), the
    ``hardware`` (RUN.hardware), and ``num_updates``, after which training ended (RUN.log)."""
    cost: dict[str, object] = {}
    for name, kind in (("seconds", int), ("hardware", str)):
        if os.path.exists(f"{run}.{name}"):
            cost[name] = kind(read(f"{run}.{name}").strip())
    updates = UPDATES.findall(read(f"{run}.log"))
    return {**cost, "num_updates": int(updates[-1])} if updates else cost


def parameters_of(run: str) -> int:
    """The number of parameters, from the training log."""
    found = PARAMETERS.findall(read(f"{run}.log"))
    if not found:
        raise UserError(f"{run}.log: names no number of parameters; train the model again")
    return int(found[-1].replace(",", ""))


def write(run: str, result: Mapping[str, Any]) -> None:
    """Write the result of a run, RUN.json."""
    with open(f"{run}.json", "w", encoding="utf-8") as file:
        json.dump(result, file)


def collect_results(shell: Shell, out: str) -> None:
    """Merge OUT/<run>.json of all runs into OUT/results.json."""
    collected = {}
    for path in shell.files(out, ".json"):
        if os.path.basename(path) != "results.json":
            with open(path, encoding="utf-8") as file:
                collected[os.path.basename(path)[: -len(".json")]] = json.load(file)
    path = os.path.join(out, "results.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(collected, file, indent=4)
    shell.say(path)


def compare(shell: Shell, out: str) -> None:
    """Print the results beside the papers', with means and spreads over seeds."""
    shell.comment("compare with the papers' tables")
    shell.run("python", "-m", "fb_fairseq", "compare", out)


def draw_against(field: str, *metrics: str) -> Callable[[Shell, str], None]:
    """A figure of a recipe: metrics of OUT/results.json against a field of the results, such as ``layers`` or ``lr``.
    It is drawn to OUT/FIELD.png."""

    def draw(shell: Shell, out: str) -> None:
        shell.comment(f"draw the results against {'the number of layers' if field == 'layers' else field}")
        shell.run("python", "-m", "fb_fairseq.papers.runner.figures.against", out, field, *metrics)

    return draw


def grouped(runs: Iterable[dict]) -> list[Group]:
    """The runs by setting, in their order; a seed counts once."""
    groups: dict[tuple, Group] = {}
    for run in runs:
        identity = {name: run[name] for name in IDENTITY if run.get(name) is not None}
        group = groups.setdefault(tuple(sorted(identity.items(), key=str)), Group(identity, []))
        if run.get("seed") not in [other.get("seed") for other in group.runs]:
            group.runs.append(run)
    return list(groups.values())


def as_float(value: float) -> float:
    """The number; infinity if it is too large to compute with, which JSON allows."""
    return float(value) if abs(value) < LARGEST or value != value else math.inf


def spread(values: list[float], metric: str) -> str:
    """The mean, with ± the sample standard deviation if there are several values; a dash without any, and "nan" if one
    of them is not finite."""
    if not values:
        return "–"
    if not all(map(math.isfinite, values)):
        return "nan"
    digits = 3 if "bits" in metric or "nll" in metric else 2
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"
