"""Copying a sequence of digits: the digits, then ``=``, then the output (see ``with_output``)."""

from fb_fairseq.papers.toy_tasks.common import LabelledSequence, LabelsRecipe, Option, SeededRandom, Task, with_output

DIGITS = "0123456789"


def copy(rng: SeededRandom, length: int = 40) -> LabelledSequence:
    """``length`` digits, to be copied."""
    given = [rng.choice(DIGITS) for _ in range(length)]
    return with_output(given, given)


TASK = Task(
    "copy a sequence of digits",
    copy,
    {"length": Option(40, "number of digits in a sequence", test_name="test_length", training_name="shortest")},
    dict(train=100_000, valid=1_000, test=1_000),
)
RECIPE = LabelsRecipe(
    "copy a sequence; test sequences are ten times as long (v1 §4.1, v3 §4.1); small: 8 digits everywhere, span 3",
    small=dict(sequences=dict(length=8, train=20_000, valid=200, test=500), span=3, updates=2000),
    full=dict(sequences=dict(length=40, test_length=400, **TASK.sequences), span=1000),
    curriculum_option="length",
)
