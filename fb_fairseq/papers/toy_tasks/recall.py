"""Multi-query associative recall (MQAR): what was the value of this key? As Arora et al., *Zoology: Measuring and
Improving Recall in Efficient Language Models* (arXiv 2312.04927, section 4 and appendix): a sequence starts with pairs
of a key and its value; then each key occurs once more, and its label is the value. Keys that come back soon are more
likely than late ones, by a power law. All other places are filled with random symbols.
"""

from fb_fairseq.errors import UserError
from fb_fairseq.papers.toy_tasks.common import (
    NO_LABEL,
    Growth,
    LabelledSequence,
    Option,
    SeededRandom,
    Task,
    TrackingRecipe,
)

POWER = 0.01  # of the law by which gaps are distributed: P(gap) ~ gap^(POWER - 1)


def check_recall(pairs: int, length: int, symbols: int) -> None:
    """Check that the pairs fit into a sequence, and that there are enough keys and values."""
    if 4 * pairs > length:
        raise UserError(
            f"{pairs} pairs in a sequence of {length}: with their queries they take 4 places each; give at most "
            f"{length // 4}, or longer sequences"
        )
    if symbols < 2 * pairs:
        raise UserError(f"--symbols {symbols}: half of them are keys; give at least {2 * pairs}, or fewer pairs")


def recall(rng: SeededRandom, pairs: int = 16, length: int = 64, symbols: int = 8192) -> LabelledSequence:
    """``pairs`` keys with their values, and a query for each, in a sequence of ``length`` symbols. The first half of
    the symbols are keys, the others values. Between queries stand random symbols, also keys, which have no label.
    """
    half = symbols // 2
    keys = _distinct(rng, pairs, half)
    values = [half + value for value in _distinct(rng, pairs, symbols - half)]
    inputs = [rng.randint(0, symbols - 1) for _ in range(length)]
    labels = [NO_LABEL] * length
    inputs[: 2 * pairs] = [symbol for pair in zip(keys, values) for symbol in pair]
    weights = [(gap + 1) ** (POWER - 1) for gap in range((length - 2 * pairs) // 2)]
    for key, value in zip(keys, values):
        gap = _weighted(rng, weights)
        weights[gap] = 0.0
        place = 2 * pairs + 2 * gap
        inputs[place] = key
        labels[place] = str(value)
    return LabelledSequence(list(map(str, inputs)), labels)


def _distinct(rng: SeededRandom, number: int, end: int) -> list[int]:
    """Different numbers below ``end``, in random order."""
    drawn: dict[int, None] = {}  # a number that comes again keeps its place
    while len(drawn) < number:
        drawn[rng.randint(0, end - 1)] = None
    return list(drawn)


def _weighted(rng: SeededRandom, weights: list[float]) -> int:
    """An index, as likely as its weight."""
    left = rng.fraction() * sum(weights)
    for index, weight in enumerate(weights):
        left -= weight
        if left < 0 and weight:
            return index
    return max(index for index, weight in enumerate(weights) if weight)


TASK = Task(
    "give the value of a key that occurred before (multi-query associative recall)",
    recall,
    {
        "pairs": Option(16, "number of keys with a value", test_name="test_pairs", training_name="fewest"),
        "length": Option(64, "number of symbols in a sequence", test_name="test_length"),
        "symbols": Option(8192, "number of different symbols, half of them keys", lowest=4),
    },
    dict(train=100_000, valid=1_000, test=3_000),
    check=check_recall,
    growth=Growth(
        size="pairs",
        smallest=2,
        steps_each=4,
        symbols=lambda given: list(map(str, range(given["symbols"]))),
        labels=lambda given: list(map(str, range(given["symbols"] // 2, given["symbols"]))),
    ),
)
RECIPE = TrackingRecipe(
    "values of keys that occurred before: multi-query associative recall (arXiv 2312.04927)",
    small=dict(longest=32, symbols=256, updates=4000, layers=2, width=64, heads=2, tokens=2048),
    full=dict(longest=64, symbols=8192, updates=50_000, layers=2, width=128, heads=2, tokens=16_384),
)
