"""Word problems of finite groups: after each element of a sequence, what is the product so far? As Merrill et al., *The
Illusion of State in State-Space Models* (arXiv 2404.08819, section 5): sequences of uniformly drawn elements, and every
step has a label. Keeping track of A5 or S5 is complete for NC1, so no Transformer or state-space model of fixed depth
can do it for all lengths, unless TC0 = NC1.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, permutations
from typing import NamedTuple, TypeVar

from fb_fairseq.papers.toy_tasks.common import Growth, LabelledSequence, Option, SeededRandom, Task, TrackingRecipe

GROUPS = ("parity", "S3", "A5", "S5")  # all but the first are named by their permutations


T = TypeVar("T")


class Group(NamedTuple):
    """A finite group.

    Attributes:
        elements: their names, the identity first. Permutations are written as the images of 1, 2, …: ``21345`` swaps 1
            and 2.
        table: ``table[a][b]`` is the index of the product ab; of permutations: first b, then a.
    """

    elements: tuple[str, ...]
    table: tuple[tuple[int, ...], ...]


@cache
def group_named(name: str) -> Group:
    """The group of this name, one of ``GROUPS``."""
    if name == "parity":
        return _group(range(2), lambda a, b: (a + b) % 2, str)
    elements = [p for p in permutations(range(int(name[1:]))) if name[0] == "S" or _even(p)]
    return _group(elements, lambda a, b: tuple(a[i] for i in b), lambda p: "".join(str(i + 1) for i in p))


def _even(permutation: Sequence[int]) -> bool:
    return sum(a > b for a, b in combinations(permutation, 2)) % 2 == 0


def _group(elements: Sequence[T], multiply: Callable[[T, T], T], name: Callable[[T], str]) -> Group:
    index = {element: i for i, element in enumerate(elements)}
    table = tuple(tuple(index[multiply(a, b)] for b in elements) for a in elements)
    return Group(tuple(map(name, elements)), table)


def word_problem(rng: SeededRandom, group: str = "A5", length: int = 128) -> LabelledSequence:
    """``length`` elements of a group, each labelled with the product of all up to it, the first one leftmost."""
    elements, table = group_named(group)
    drawn = [rng.randint(0, len(elements) - 1) for _ in range(length)]
    so_far: list[int] = []
    for element in drawn:
        so_far.append(table[so_far[-1]][element] if so_far else element)
    return LabelledSequence([elements[i] for i in drawn], [elements[i] for i in so_far])


TASK = Task(
    "give the product so far after each element of a finite group",
    word_problem,
    {
        "group": Option("A5", "group", GROUPS),
        "length": Option(128, "number of elements in a sequence", test_name="test_length", training_name="shortest"),
    },
    dict(train=1_000_000, valid=1_000, test=1_000),
    growth=Growth(
        smallest=2,
        symbols=lambda given: group_named(given["group"]).elements,
        labels=lambda given: group_named(given["group"]).elements,
        by_position=True,
    ),
)
RECIPE = TrackingRecipe(
    "the product so far of elements of a finite group: parity, S3, A5, S5 (arXiv 2404.08819)",
    small=dict(group="A5", longest=32, updates=4000, layers=2, width=64, heads=2, tokens=2048),
    full=dict(group="S5", longest=128, updates=50_000, layers=4, width=256, heads=4, tokens=16_384),
)
