"""Modular arithmetic with brackets: what is the value of this expression? As Delétang et al., *Neural Networks and the
Chomsky Hierarchy* (arXiv 2207.02098, appendix A; deterministic context-free): digits, ``+``, ``-`` and ``*`` modulo 5,
with brackets around every operation and a sign before some digits. The only label of a sequence is that of ``=`` at its
end."""

from fb_fairseq.papers.toy_tasks.common import NO_LABEL, Growth, LabelledSequence, Option, SeededRandom, Task, Tracking

OPERATORS = "+-*"


def modular_arithmetic(rng: SeededRandom, length: int = 40, modulus: int = 5) -> LabelledSequence:
    """An expression of ``length - 1`` symbols, then ``=``, whose label is the value."""
    written, value = _expression(rng, length - 1, modulus)
    return LabelledSequence([*written, "="], [NO_LABEL] * len(written) + [str(value)])


def _expression(rng: SeededRandom, length: int, modulus: int) -> tuple[list[str], int]:
    """An expression of this length, and its value."""
    if length <= 4:  # a digit, -digit, (digit) or (-digit)
        digit = rng.randint(0, modulus - 1)
        written = ["-", str(digit)] if length % 2 == 0 else [str(digit)]
        value = -digit if length % 2 == 0 else digit
        return (["(", *written, ")"] if length > 2 else written), value % modulus
    left_length = rng.randint(1, length - 4)  # two brackets, an operator and at least one symbol on either side
    left, a = _expression(rng, left_length, modulus)
    right, b = _expression(rng, length - 3 - left_length, modulus)
    operator = rng.choice(OPERATORS)
    value = {"+": a + b, "-": a - b, "*": a * b}[operator]
    return ["(", *left, operator, *right, ")"], value % modulus


TASK = Task(
    "evaluate an expression with brackets modulo a number",
    modular_arithmetic,
    {
        "length": Option(40, "symbols in a sequence", lowest=2, test_name="test_length", training_name="shortest"),
        "modulus": Option(5, "values are computed modulo this number", lowest=2, highest=10),
    },
    dict(train=100_000, valid=1_000, test=1_000),
    growth=Growth(
        smallest=4,
        symbols=lambda given: "01234+-*()=",
        labels=lambda given: "01234",
    ),
)
RECIPE = Tracking(
    "values of expressions with brackets, modulo 5 (arXiv 2207.02098)",
    small=dict(longest=40, updates=4000, layers=2, width=64, heads=2, tokens=8192),
    full=dict(longest=40, updates=50_000, layers=2, width=256, heads=4, tokens=65_536),
)
