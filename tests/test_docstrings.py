"""Docstrings of the package: that they are there, and how they begin; indexes of folders."""

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from tests.test_architecture import MAY_IMPORT, package

# Folders with more modules than this have an index of them in the docstring of their ``__init__.py``.
MODULES_WITHOUT_INDEX = 3
AUTOGRAD = {"backward", "forward"}  # which torch documents


def name_of(base: ast.expr) -> str:
    """``Function`` for both ``Function`` and ``torch.autograd.Function``."""
    return getattr(base, "attr", getattr(base, "id", ""))


@functools.cache
def documented_methods(name: str) -> frozenset[str]:
    """The methods that classes of this name in the package document, and their bases: overrides inherit that."""
    found: set[str] = set()
    for module in package().values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and node.name == name:
                functions = (child for child in node.body if isinstance(child, ast.FunctionDef))
                found |= {function.name for function in functions if ast.get_docstring(function)}
                found = found.union(*(documented_methods(name_of(base)) for base in node.bases))
    return frozenset(found)


def without_docstring(name: str, node: ast.AST) -> Iterator[str]:
    """The public modules, classes, functions and methods in ``node`` that lack a docstring."""
    if not ast.get_docstring(node):
        yield f"{name}:{getattr(node, 'lineno', 1)}"
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return  # what is defined inside a function is private to it
    for child in node.body:
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and not child.name.startswith("_"):
            bases = [name_of(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
            documented = (AUTOGRAD if "Function" in bases else set()).union(*map(documented_methods, bases))
            if not (bases and child.name in documented):
                yield from without_docstring(f"{name}.{child.name}", child)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_docstrings(room):
    missing = []
    for module in package().values():
        if module.room == room:
            missing += without_docstring(module.name, module.tree)
    assert not missing, f"{len(missing)} without a docstring:\n" + "\n".join(missing)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_sentences_of_docstrings(room):
    """None begins with "what", "who" or "that of", nor with "whether …:": the first word is a noun or an imperative."""
    wrong = []
    for module in package().values():
        for node in ast.walk(module.tree) if module.room == room else ():
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = " ".join((ast.get_docstring(node) or "").split())
                for sentence in re.split(r"(?<=[.!?]) (?=[A-Z(])", text):
                    if re.match(r"\(?(What|Who|That of)\b|Whether [^.]*: ", sentence):
                        wrong.append(f"{module.name}:{getattr(node, 'lineno', 1)} {sentence}")
    assert not wrong, "\n".join(wrong)


def test_indexes_name_every_module():
    """And every folder, as ``attention.py`` and ``feedback/``."""
    lacking = []
    for folder in (module for module in package().values() if module.is_package):
        inside = [module for module in package().values() if module.name.rpartition(".")[0] == folder.name]
        few = sum(not module.is_package for module in inside) <= MODULES_WITHOUT_INDEX
        if few or folder.name == "fb_fairseq.papers.toy_tasks":  # (a command lists them)
            continue
        index = ast.get_docstring(folder.tree)
        names = [module.name.rpartition(".")[2] + ("/" if module.is_package else ".py") for module in inside]
        missing = [name for name in names if not re.search(rf"(?<![\w/]){re.escape(name)}", index)]
        if missing:
            lacking.append(f"{folder.name}: {', '.join(missing)}")
    assert not lacking, "\n".join(lacking)
