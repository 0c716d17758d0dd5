"""Word problems of finite groups: after each element of a sequence, what is the product so far? As Merrill et al., *The
Illusion of State in State-Space Models* (arXiv 2404.08819, section 5): sequences of uniformly drawn elements, and every
step has a label. Keeping track of A5 or S5 is complete for NC1, so no Transformer or state-space model of fixed depth
can do it for all lengths, unless TC0 = NC1."""

from collections.abc import Sequence
from functools import cache
from itertools import permutations, product
from typing import NamedTuple

from fb_fairseq.papers.toy_tasks.common import (
    Choice,
    Growth,
    LabelledSequence,
    SeededRandom,
    Size,
    Splits,
    Task,
    Tracking,
)

# Cyclic groups are named by their order, the others by their permutations; A4xZ5 is a product of groups.
GROUPS = ("parity", "Z60", "A4xZ5", "S3", "A5", "S5")


class Group(NamedTuple):
    """A finite group."""

    # Their names, the identity first. Permutations are written as the images of 1, 2, …: ``21345`` swaps 1 and 2.
    elements: tuple[str, ...]
    # ``table[a][b]`` is the index of the product ab; of permutations: first b, then a
    table: tuple[tuple[int, ...], ...]


@cache
def named(name: str) -> Group:
    """The group of this name, one of ``GROUPS``."""
    if "x" in name:
        return _direct_product(*map(named, name.split("x")))
    if name == "parity" or name[0] == "Z":
        order = 2 if name == "parity" else int(name[1:])
        table = tuple(tuple((a + b) % order for b in range(order)) for a in range(order))
        return Group(tuple(map(str, range(order))), table)
    size = int(name[1:])
    elements = [p for p in permutations(range(size)) if name[0] == "S" or _even(p)]
    index = {p: i for i, p in enumerate(elements)}
    table = tuple(tuple(index[tuple(a[b[i]] for i in range(size))] for b in elements) for a in elements)
    return Group(tuple("".join(str(i + 1) for i in p) for p in elements), table)


def _even(permutation: Sequence[int]) -> bool:
    pairs = ((i, j) for j in range(len(permutation)) for i in range(j))
    return sum(permutation[i] > permutation[j] for i, j in pairs) % 2 == 0


def _direct_product(first: Group, second: Group) -> Group:
    pairs = list(product(range(len(first.elements)), range(len(second.elements))))
    index = {pair: i for i, pair in enumerate(pairs)}
    table = tuple(tuple(index[first.table[a][c], second.table[b][d]] for c, d in pairs) for a, b in pairs)
    return Group(tuple(f"{first.elements[a]}.{second.elements[b]}" for a, b in pairs), table)


def word_problem(rng: SeededRandom, group: str = "A5", length: int = 128) -> LabelledSequence:
    """``length`` elements of a group, each labelled with the product of all up to it, the first one leftmost."""
    elements, table = named(group)
    drawn = [rng.randint(0, len(elements) - 1) for _ in range(length)]
    so_far: list[int] = []
    for element in drawn:
        so_far.append(table[so_far[-1]][element] if so_far else element)
    return LabelledSequence([elements[i] for i in drawn], [elements[i] for i in so_far])


TASK = Task(
    "give the product so far after each element of a finite group",
    word_problem,
    {
        "group": Choice("A5", "group", GROUPS),
        "length": Size(128, "number of elements in a sequence", test_name="test_length", training_name="shortest"),
    },
    Splits(1_000_000, 1_000, 1_000),
    growth=Growth(
        **dict(size="length", smallest=2, steps=lambda size: size),
        options=lambda size, given: dict(length=size, group=given["group"]),
        symbols=lambda given: named(given["group"]).elements,
        **dict(labels=lambda given: named(given["group"]).elements, by_position=True),
    ),
)
RECIPE = Tracking(
    "the product so far of elements of a finite group: parity, Z60, S3, A5, S5 (arXiv 2404.08819)",
    small=dict(group="A5", longest=32, updates=4000, layers=2, width=64, heads=2, tokens=2048),
    full=dict(group="S5", longest=128, updates=50_000, layers=4, width=256, heads=4, tokens=16_384),
)
