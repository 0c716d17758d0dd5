"""Word problems and recall, checked against mathematics that shares no code with the generators."""

from collections import Counter

import numpy as np
import pytest

from fb_fairseq.papers.toy_tasks.common import NO_LABEL, SeededRandom
from fb_fairseq.papers.toy_tasks.recall import recall
from fb_fairseq.papers.toy_tasks.word_problem import GROUPS, group_named, word_problem

ORDERS = {"parity": 2, "S3": 6, "A5": 60, "S5": 120}


def matrix(name):
    """A permutation as a matrix."""
    return np.eye(len(name))[:, [int(i) - 1 for i in name]]


@pytest.mark.parametrize("group", GROUPS)
def test_products(group):
    """The label of a step is the product of matrices so far; that of a permutation has a 1 in row p(i) of column i."""
    assert len(group_named(group).elements) == len(set(group_named(group).elements)) == ORDERS[group]
    for i in range(20):
        inputs, labels = word_problem(SeededRandom(1, group, i), group, 30)
        if group == "parity":
            assert [int(label) for label in labels] == [sum(map(int, inputs[: n + 1])) % 2 for n in range(30)]
            continue
        product = np.eye(len(inputs[0]))
        for element, label in zip(inputs, labels):
            product = product @ matrix(element)
            assert (product == matrix(label)).all()


@pytest.mark.parametrize("group", GROUPS)
def test_group_axioms(group):
    elements, table = group_named(group)
    table = np.array(table)
    order = len(elements)
    assert (table[0] == range(order)).all() and (table[:, 0] == range(order)).all()  # the first one is the identity
    for row in (*table, *table.T):
        assert sorted(row) == list(range(order))
    some = np.random.default_rng(0).integers(order, size=(3, 500))
    assert (table[table[some[0], some[1]], some[2]] == table[some[0], table[some[1], some[2]]]).all()


def test_elements_are_drawn_uniformly():
    inputs = [name for i in range(100) for name in word_problem(SeededRandom(1, i), "S3", 60).inputs]
    counts = Counter(inputs)
    assert len(counts) == 6 and all(850 < count < 1150 for count in counts.values())


@pytest.mark.parametrize("pairs,length,symbols", [(2, 8, 4), (4, 64, 64), (16, 64, 8192)])
def test_recall(pairs, length, symbols):
    """Each key of the pairs is asked for once, and no other step has a label."""
    gaps = Counter()
    for i in range(100):
        inputs, labels = recall(SeededRandom(1, i), pairs, length, symbols)
        keys = inputs[: 2 * pairs : 2]
        values = inputs[1 : 2 * pairs : 2]
        assert len(inputs) == len(labels) == length and len(set(keys)) == len(set(values)) == pairs
        assert all(int(key) < symbols // 2 <= int(value) < symbols for key, value in zip(keys, values))
        asked = [place for place, label in enumerate(labels) if label != NO_LABEL]
        assert min(asked) >= 2 * pairs and sorted(inputs[place] for place in asked) == sorted(keys)
        assert all(labels[place] == dict(zip(keys, values))[inputs[place]] for place in asked)
        gaps.update(place - 2 * pairs for place in asked)
    if length > 4 * pairs:
        assert gaps[0] > 4 * gaps[length - 2 * pairs - 2]  # soon is more likely than late
