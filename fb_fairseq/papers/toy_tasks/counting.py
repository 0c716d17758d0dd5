"""Counting: A's, then ``=``, then as many B's (see ``with_output``)."""

from fb_fairseq.papers.toy_tasks.common import LabelledSequence, LabelsRecipe, Option, SeededRandom, Task, with_output


def counting(rng: SeededRandom, longest: int = 50) -> LabelledSequence:
    """1 to ``longest`` times A, to be followed by the same number of B's."""
    n = rng.randint(1, longest)
    return with_output(["A"] * n, ["B"] * n)


TASK = Task(
    "write as many B's as there were A's",
    counting,
    {"longest": Option(50, "largest number of A's in a sequence")},
    dict(train=100_000, valid=1_000, test=1_000),
    disjoint_splits=False,  # there are only ``longest`` different sequences
)
RECIPE = LabelsRecipe(
    "write as many B's as there were A's (v3 §4.1); small: up to 20, span 8",
    small=dict(sequences=dict(longest=20, train=20_000, valid=200, test=500), updates=2000),
    full=dict(sequences=dict(longest=50, **TASK.sequences), span=128),
    curriculum_option="longest",
)
