"""The tasks' data, checked by simulators that share no code with the generators, and against cases written by hand."""

import hashlib
from collections import Counter

import pytest

from fb_fairseq.papers.toy_tasks import names
from fb_fairseq.papers.toy_tasks.algorithmic import algorithmic
from fb_fairseq.papers.toy_tasks.blocked_random_walk import blocked_random_walk, simulate_blocked_walk
from fb_fairseq.papers.toy_tasks.common import SeededRandom
from fb_fairseq.papers.toy_tasks.common.command import main
from fb_fairseq.papers.toy_tasks.copy import copy
from fb_fairseq.papers.toy_tasks.counting import counting
from fb_fairseq.papers.toy_tasks.random_walk import random_walk
from fb_fairseq.papers.toy_tasks.reverse import reverse
from fb_fairseq.papers.values import load


def many(make, number=200, **sizes):
    return [make(SeededRandom(1, make.__name__, i), **sizes) for i in range(number)]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_walks_replayed(size):
    """In complex numbers: a quarter turn multiplies the heading by i or -i."""
    for actions, cells in many(random_walk, size=size):
        place, heading = 0j, 1 + 0j
        assert len(actions) == len(cells) == 100
        for action, cell in zip(actions, cells):
            if action == "forward":
                ahead = place + heading
                inside = 0 <= ahead.real < size and 0 <= ahead.imag < size
                place = ahead if inside else place
            else:
                heading *= {"right": 1j, "left": -1j}[action]
            assert cell == f"{int(place.imag)},{int(place.real)}"
    assert {cell for _, cells in many(random_walk, size=size) for cell in cells} == {
        f"{row},{column}" for row in range(size) for column in range(size)
    }


@pytest.mark.parametrize(
    "moves,blocks,cells",
    [
        ("up east up west west up down", "CG", "BBHHHEH"),
        ("east up west west down up", "FI", "EBACCC"),
        ("up down east down west", "E", "BBCFF"),
    ],
)
def test_blocked_walks_by_hand(moves, blocks, cells):
    """The maze is A B C / D E F / G H I, a torus; the agent starts at E even if this is a block."""
    assert "".join(simulate_blocked_walk(moves.split(), blocks)) == cells


@pytest.mark.parametrize("blocks", ["E", "BI"])
def test_blocks(blocks):
    """No move leads into a block; the moves are those of any other walk with the seed."""
    walks = many(blocked_random_walk, blocks=blocks)
    assert [walk.inputs for walk in walks] == [walk.inputs for walk in many(blocked_random_walk)]
    assert {cell for _, cells in walks for here, cell in zip("E" + "".join(cells), cells) if cell != here}.isdisjoint(
        blocks
    )


def test_copy_reverse_and_counting():
    for make, expected in ((copy, lambda x: x), (reverse, lambda x: x[::-1])):
        for inputs, labels in many(make, length=7):
            assert inputs[7] == "=" and len(inputs) == len(labels) == 15
            assert labels == ["_"] * 7 + expected(inputs[:7]) + ["end"] and inputs[8:] == labels[7:-1]
    lengths = Counter()
    for inputs, labels in many(counting, number=2000, longest=5):
        n = inputs.count("A")
        assert inputs == ["A"] * n + ["="] + ["B"] * n and labels == ["_"] * n + ["B"] * n + ["end"]
        lengths[n] += 1
    assert set(lengths) == {1, 2, 3, 4, 5} and min(lengths.values()) > 300


def condition(left, sign, right, values, highest):
    """Whether it holds; asserts that it compares a variable with another one, or with a number in the range."""
    assert left in values and right != left
    number = values[right] if right.isalpha() else int(right)
    assert 1 <= number <= highest
    return {"<": values[left] < number, ">": values[left] > number}[sign]


def execute(inputs, labels, highest):
    """Run a program and return the kinds of its statements; asserts the labels and the range of the values. An
    assignment that is not executed is "unset"."""
    text = " ".join(inputs)
    labelled = iter(label for label in labels if label != "_")
    values, kinds = {}, []
    assert text.endswith(" ;")
    for line in text[:-2].split(" ; "):
        words = line.split()
        if words[0] == "print":
            assert next(labelled) == str(values[words[1]])
            kinds.append("print")
            continue
        if words[0] == "if":
            assert words[4] == ":" and (words[5] in values) == (words[6] in ("++", "--"))
            kinds += ["if", words[2]]
            holds = condition(*words[1:4], values, highest)
            words = words[5:]
            if words[1] == "=":
                kinds.append("nested set" if holds else "unset")
            if not holds:
                continue
        if words[1] == "=":
            assert words[0] not in values, "initialised once"
            values[words[0]] = int(words[2])
            kinds.append("=")
        else:
            values[words[0]] += {"++": 1, "--": -1}[words[1]]
            kinds.append(words[1])
        assert all(1 <= value <= highest for value in values.values())
    assert next(labelled, None) is None
    return kinds


@pytest.mark.parametrize("variables,statements,highest", [(3, 100, 10), (5, 100, 10), (1, 12, 2), (2, 30, 5)])
def test_programs_executed(variables, statements, highest):
    mix = Counter()
    letters = set()
    for inputs, labels in many(algorithmic, variables=variables, statements=statements, highest=highest):
        assert len(inputs) == len(labels)
        printed = [i + 1 for i, symbol in enumerate(inputs) if symbol == "print"]
        assert [i for i, label in enumerate(labels) if label != "_"] == printed
        kinds = execute(inputs, labels, highest)
        assert inputs.count(";") == statements
        mix.update(kinds)
        letters.update(symbol for symbol in inputs if symbol.isalpha() and symbol not in ("print", "if"))
    assert len(letters) == variables
    if statements == 100:
        assert 0.2 < mix["print"] / statements / 200 < 0.45 and mix["++"] > 1000 and mix["--"] > 1000
    assert not mix["unset"] and not mix["nested set"]


STATEMENTS = load("hyperparameters")["toy tasks"]["columns"]["algorithmic"]["statements_of_table_7"]


@pytest.mark.parametrize("mix,as_in_table_7", [("table7", True), ("even", False)])
def test_mix_of_statements(mix, as_in_table_7):
    """Whether the counts in the paper's example program are what chance makes of ours."""
    kinds = Counter()
    programs = many(algorithmic, mix=mix)
    for inputs, _ in programs:
        for statement in " ".join(inputs).split(" ; "):
            kind, sign = statement.split()[:2]
            if kind not in ("print", "if"):
                kind = "=" if sign == "=" else "change"
            kinds[kind] += 1
    assert sum(STATEMENTS.values()) == sum(kinds.values()) / len(programs) == 100
    distances = {}  # in standard deviations
    for kind, number in STATEMENTS.items():
        mean = kinds[kind] / len(programs)
        distances[kind] = abs(number - mean) / (mean * (100 - mean) / 100) ** 0.5
    assert (max(distances.values()) < 1) == as_in_table_7 and (distances["change"] < 3) == as_in_table_7, distances


def test_nested_assignments():
    """They are executed or not, and leave programs valid; conditions compare with < and >."""
    mix = Counter()
    for inputs, labels in many(algorithmic, highest=4, nested_assignments=True):
        mix.update(execute(inputs, labels, 4))
    assert min(mix["<"], mix[">"]) > 1000 and min(mix["unset"], mix["nested set"]) > 20


def test_example_of_the_paper():
    """The beginning of v3 Table 7 is valid as we read it: y is assigned twice, once without effect."""
    text = """x = 1 ; print x ; x ++ ; print x ; z = 8 ; print z ; print z ; x -- ; if x > z : z -- ; z ++ ; print z ;
    print x ; print x ; if z < x : z ++ ; x ++ ; z -- ; x -- ; if z > x : z -- ; z ++ ; if x > z : z ++ ;
    if z < 5 : y = 7 ; print x ; if x > z : z ++ ; x ++ ; y = 7 ; if x > 10 : x -- ; y -- ; x ++ ; z ++ ; print z ;"""
    kinds = execute(text.split(), "1 2 8 8 9 1 1 1 9".split(), 10)
    assert kinds.count("unset") == 1 and kinds.count("=") == 3


SMALL = ["--train", "30", "--valid", "5", "--test", "6"]


def written(folder):
    """The files of a task's data, without the mark."""
    return sorted(path for path in folder.iterdir() if path.name[0] != ".")


def digest(folder):
    return hashlib.md5(b"".join(path.read_bytes() for path in written(folder))).hexdigest()


DIGESTS = {  # of the six files in the order of their names, with seed 1 and the sizes of SMALL
    "copy": "0639b7996707e934dfb747c48c0d12ce",
    "reverse": "f6290c0768303fa0397083d764aef5ac",
    "counting": "51741dd3af6ac8374000c76bc2225819",
    "random_walk": "255d8dcf37f5cc4daa05e603d5db12ee",
    "blocked_random_walk": "e97a50a06321989f107c9a21f0e04107",
    "algorithmic": "40ed1f76198c7ef803707e2d1280a982",
    "word_problem": "1dd3babe56a6c4398efef86f2790ebb0",
    "recall": "7b019c9c885c8329ef590a1a07555d25",
    "algorithmic --mix even": "9e27206b1dbeccb139ce3aa1c34ceac5",  # results before there was a choice
}
SPLITS = ("test", "train", "valid")


@pytest.mark.parametrize("line", [*names(), "algorithmic --mix even"])
def test_files(line, tmp_path):
    """Results of different versions of this package can be compared only if they are measured on the same data: the
    same seed gives the same files, another seed gives others. No sequence occurs in two splits."""
    for seed in ("1", "2"):
        main([*line.split(), "--out", str(tmp_path / seed), "--seed", seed, *SMALL])
    assert digest(tmp_path / "1") == DIGESTS[line]
    files, others = (written(tmp_path / seed) for seed in ("1", "2"))
    assert [file.name for file in files] == [f"{split}.{side}" for split in SPLITS for side in ("input", "label")]
    assert not {file.read_bytes() for file in files} & {file.read_bytes() for file in others}
    test, train, valid = (file.read_text().splitlines() for file in files[::2])
    assert (len(train), len(valid), len(test)) == (30, 5, 6)
    if line != "counting":
        assert not set(train) & {*valid, *test} and not set(valid) & set(test)


@pytest.mark.parametrize("task", ["copy", "reverse"])
@pytest.mark.parametrize("length,longest", [(["--test-length", "8"], 8), ([], 5)])
def test_tests_with_several_lengths(task, length, longest, tmp_path):
    """Each as likely, in the test split only; training sequences are as long as without the option."""
    sizes = ["--length", "5", "--train", "20", "--valid", "5", "--test", "1500", "--shortest", "4"]
    main([task, "--out", str(tmp_path), *sizes, *length, "--test-shortest", "3"])
    found = {}
    for split in ("train", "valid", "test"):
        lines = (tmp_path / f"{split}.input").read_text().splitlines()
        found[split] = Counter(line.index("=") // 2 for line in lines)
    assert set(found["train"]) == {4, 5} and set(found["valid"]) == {5}
    assert set(found["test"]) == set(range(3, longest + 1))
    number = 1500 / len(found["test"])
    assert all(0.75 * number < count < 1.25 * number for count in found["test"].values())


@pytest.mark.parametrize(
    "words,message",
    [
        ("copy --length 0", "--length 0: give a number from 1 to"),
        (
            "reverse --test-length 9 --test-shortest 10",
            "--test-shortest 10: more than --test-length 9; give at most",
        ),
        ("algorithmic --variables 7", "--variables 7: give a number from 1 to 6"),
        ("word_problem --group S4", "--group S4: unknown; choose from parity, S3, A5, S5"),
        ("blocked_random_walk --blocks CC", '--blocks "CC": give one or more of the letters A to I, each once'),
        (
            "recall --test-pairs 17",
            "17 pairs in a sequence of 64: with their queries they take 4 places each; give at most 16",
        ),
        ("recall --symbols 31", "--symbols 31: half of them are keys; give at least 32"),
        ("copy --length 1", "too few different sequences"),
    ],
)
def test_bad_input(tmp_path, refused, words, message):
    assert message in refused(main, [*words.split(), "--out", str(tmp_path / "data")])
    assert not list(tmp_path.rglob("*.*")), "no incomplete files"
