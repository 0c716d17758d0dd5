"""The results of runs, RUN.json, and of recipes, results.json; runs that differ only in their seed are summarised."""

import glob
import json
import math
import os
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fb_fairseq.errors import UserError

# What a run's name says of it, and what else identifies it beside its ``settings``, but for the seed.
NAMED = tuple("recipe small model layers finetuned projections data attention_span span".split())
IDENTITY = (*NAMED, "updates", "lr", "test_streams")

# Measurements, in the order of the columns.
HEADINGS = {
    "dev_bits_per_token": "validation bits per token",
    "test_bits_per_token": "test bits per token",
    "dev_perplexity": "validation perplexity",
    "test_perplexity": "test perplexity",
    "dev_accuracy": "validation labels right, %",
    "accuracy": "labels right, %",
    "sequence_accuracy": "sequences right, %",
    "sacrebleu": "sacreBLEU",
    "tokenized_bleu": "tokenised BLEU",
    "compound_split_bleu": "compound-split BLEU",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "dev_nll": "validation loss, bits per token",
    "dev_score": "validation score",
    "decoded_tokens_per_second": "tokens/s",
    "success": "success, % of the episodes",
    "reward": "reward",
}


def number_of_layers(number: object) -> str:
    """Such as "2 layers"; also of a number as a text."""
    return f"{number} layer" if str(number) == "1" else f"{number} layers"


# Settings in words, where their names would not do.
WORDS = {"layers": number_of_layers, "span": "span {}".format, "attention_span": "span {}".format}


class Group(NamedTuple):
    """Runs that differ in nothing but their seed.

    Attributes:
        identity: the values of ``IDENTITY`` that the results have.
        runs: the results of each seed.
        differs: the settings that set it apart from groups with the same values of ``NAMED``.
    """

    identity: dict[str, object]
    runs: list[dict]
    differs: dict[str, object]

    def words(self, *left_out: str) -> list[str]:
        """The settings that set it apart, each in a few words, without those ``left_out``."""
        return [f"{name} {value}" for name, value in self.differs.items() if name not in left_out]

    def values(self, metric: str) -> list[float]:
        """The measurements of a metric; empty if no run has it. Those of a run that diverged may be NaN."""
        found = [run.get(metric) for run in self.runs]
        return [float(value) for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)]

    def matches(self, wanted: dict[str, object]) -> bool:
        """Whether all wanted values are the group's; of ``data``, the command line's words, all must occur."""
        known = {**self.identity, "data": f" {self.identity.get('data')} "}
        return all(
            f" {value} " in known[name] if name == "data" else known.get(name) == value
            for name, value in wanted.items()
        )


def read(path: str) -> str:
    """A file's text; empty if it does not exist."""
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def read_runs(out: str) -> list[dict]:
    """The results of all runs in the output folder of a recipe, or in its subfolders (one per seed, say), each with the
    ``path`` of its files.
    """
    own = os.path.join(out, "results.json")
    paths = [own] if os.path.exists(own) else sorted(glob.glob(os.path.join(glob.escape(out), "*", "results.json")))
    if not paths:
        raise UserError(f"{out}: has no results.json; give the output folder of a recipe whose models are evaluated")
    runs: list[dict] = []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            runs += [{**run, "path": os.path.join(os.path.dirname(path), name)} for name, run in found.items()]
        except (OSError, ValueError, AttributeError, TypeError):
            raise UserError(f"{path}: cannot be read; run the recipe's last step again") from None
    if not runs or any("recipe" not in run or "model" not in run for run in runs):
        raise UserError(
            f"{out}: its results do not name their recipe; run the recipe again, which repeats its last step"
        )
    return runs


def grouped(runs: Iterable[dict]) -> list[Group]:
    """The runs by all their settings, in their order; a seed counts once."""
    groups: dict[tuple, Group] = {}
    alike: dict[tuple, list[dict[str, object]]] = {}
    for run in runs:
        identity = {name: run[name] for name in IDENTITY if run.get(name) is not None}
        settings: dict[str, Any] = {**run.get("settings", {}), **identity}
        key = tuple(sorted(settings.items(), key=str))
        if key not in groups:
            groups[key] = Group(identity, [], {})
            # Groups with the same values of NAMED need more words to tell them apart.
            alike.setdefault(tuple(map(identity.get, NAMED)), []).append(settings)
        if run.get("seed") not in [other.get("seed") for other in groups[key].runs]:
            groups[key].runs.append(run)
    for key, group in groups.items():
        others = alike[tuple(map(group.identity.get, NAMED))]
        for name, value in key:
            if any(other.get(name) != value for other in others):
                group.differs[name] = value
    return list(groups.values())


def spread(values: list[float], metric: str) -> str:
    """The mean, with ± the sample standard deviation if there are several values; a dash without any, and "nan" if one
    of them is not finite.
    """
    if not values:
        return "–"
    if not all(map(math.isfinite, values)):
        return "nan"
    digits = 3 if "bits" in metric or "nll" in metric else 2
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def markdown(columns: Sequence[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table; all columns but the first are aligned to the right."""
    line = "| " + " | ".join(columns) + " |"
    return [line, "|---|" + "---:|" * (len(columns) - 1), *("| " + " | ".join(row) + " |" for row in rows)]
