"""Values that are written as Python, read without running them."""

import pathlib
import re
import sys

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.literals import MAX_LENGTH, parse_literal

VALUES = [
    "(0.9, 0.98)",
    "[(512, 10, 5)] + [(512, 3, 2)] * 4 + [(512,2,2)] + [(512,2,2)]",
    "[(512, 3)] * 20",
    "(+3,)",
    "{'data': 'x', 'n': -3, 2: None}",
    " 1e-5",
    "'text' 'and more'",
    "[True, False, {1, 2}]",
    "2 * 3 + 4.5",
    f"[0] * {MAX_LENGTH}",
]


@pytest.mark.parametrize("text", VALUES)
def test_values(text):
    assert parse_literal(text) == eval(text.strip())


CODE = [
    "__import__('os').system('true') or [5]",
    "().__class__.__bases__[0].__subclasses__()",
    "open('/etc/passwd')",
    "[x for x in (1,)]",
    "lambda: 1",
    "a",
    "nan",
    "1 if 2 else 3",
    "f'{1}'",
    "1j",
    "b'x'",
    "...",
    "{**{}}",
    "x := 3",
    "1; 2",
    "[0] * 10**9",
    f"[0] * {MAX_LENGTH + 1}",
    "[[0] * 9999] * 99999",
    "'a' * 3",
    "9 ** 9",
    "1" * 20000,
    "(",
    "",
    "(" * 5000 + ")" * 5000,
    "-" * 9000 + "1",
    "\0",
]


@pytest.mark.parametrize("text", CODE, ids=lambda text: text[:20])
def test_code(text):
    with pytest.raises(UserError, match="is code, or not a valid value.*--model-overrides") as error:
        parse_literal(text)
    assert len(str(error.value)) < 400 and "\n" not in str(error.value)


@pytest.mark.parametrize("length,shown", [(60, 60), (61, 60)])
def test_long_texts_are_shown_in_part(length, shown):
    with pytest.raises(UserError) as error:
        parse_literal("x" * length)
    assert str(error.value).startswith(repr("x" * shown + "…" * (shown < length)))


def test_other_types_raise_what_eval_raises():
    """``fairseq.utils.eval_bool`` relies on it."""
    with pytest.raises(TypeError):
        parse_literal(True)


@pytest.mark.not_fast
def test_all_of_fairseqs_modules_read_literals():
    """Every module of fairseq that calls ``eval``, but its examples, which are not imported."""
    fairseq = pytest.importorskip("fairseq")

    from fb_fairseq import patches  # noqa: F401

    root, found = pathlib.Path(fairseq.__file__).parent, []
    for path in root.rglob("*.py"):
        inside = path.relative_to(root)
        if inside.parts[0] == "examples" or not re.search(r"(?<![\w.])eval\(", path.read_text(encoding="utf-8")):
            continue
        name = ".".join(["fairseq", *inside.with_suffix("").parts])
        found.append(name)
        assert sys.modules[name].eval is parse_literal, name
    assert len(found) > 10
