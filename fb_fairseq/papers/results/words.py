"""How results are written: headings, settings in words, numbers over seeds, and tables."""

import math
import statistics
from collections.abc import Sequence

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


def in_words(name: str, value: object) -> str:
    """A setting in words, such as "2 layers"; of those whose value says what it is, the value alone.

    Args:
        name: of the setting.
        value: also as a text.
    """
    if name == "layers":
        return f"{value} layer" if str(value) == "1" else f"{value} layers"
    if name == "small":
        return "small" if value in (True, "True") else "full size"
    if name == "curriculum":
        return f"{value} lengths"
    return f"span {value}" if name in ("span", "attention_span") else str(value)


def spread(values: Sequence[float], metric: str) -> str:
    """The mean, with ± the sample standard deviation if there are several values; a dash without any, and "nan" if one
    of them is not finite.

    Args:
        values: of the seeds.
        metric: their name, on which the number of digits depends.
    """
    if not values:
        return "–"
    if not all(map(math.isfinite, values)):
        return "nan"
    digits = 3 if "bits" in metric or "nll" in metric else 2
    if metric == "training_days" and max(values) < 1:  # small models train for minutes
        digits = 4
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; all columns but the first are aligned to the right."""
    line = "| " + " | ".join(columns) + " |"
    return [line, "|---|" + "---:|" * (len(columns) - 1), *("| " + " | ".join(row) + " |" for row in rows)]
