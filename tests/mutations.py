"""Do the tests notice? Draw small faults of the code from a seed, and run the tests of the area with each:

    python -m tests.mutations --seed 7 --number 24 [--area modules] [--ci] [--seconds 120]

A fault is a comparison, an operator, a number, a condition or an argument that is changed, in Python or in C++; never a
message, an annotation or a docstring. It is made in a copy of the tree. A process that has imported torch, fairseq and
transformers, but none of this code, is forked for each one; so a fault costs seconds. First come the tests of the area
that name the changed module, then its other tests, then the snapshots and the commands' (tests/cli). What survives the
tests that ``bash tests/run.sh`` runs is tried with those of ``--ci``, if that is given. The survivors are printed as
they are found. A fault is undecided where no test has failed when the time is up: it may never end, or the time is
short.

With ``--covered FILE`` the tests that have run the changed line come first. pytest-cov (not installed by
``tests/run.sh``) writes such a file, ``.coverage``; file by file, as tests that end their own process lose it:

    for file in $(find tests -name 'test_*.py'); do
        python -m pytest $file --ci -n 0 --cov=fb_fairseq --cov-append --cov-context=test --cov-report=
    done
"""

import argparse
import ast
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# Areas: the code, without the rooms of other areas, and its tests.
AREAS = {
    "ops": ("fb_fairseq/ops/**/*.py", ["tests/ops", "tests/modules"]),
    "cpp": ("fb_fairseq/ops/feedback/cpp/src/*.[hc]*", ["tests/ops/feedback/cpp", "tests/modules/test_cpp_steps.py"]),
    "modules": ("fb_fairseq/modules/**/*.py", ["tests/modules", "tests/models"]),
    "streams": ("fb_fairseq/streams/**/*.py", ["tests/streams"]),
    "models": ("fb_fairseq/models/**/*.py", ["tests/models"]),
    "tasks": ("fb_fairseq/tasks/**/*.py", ["tests/tasks", "tests/streams"]),
    "patches": ("fb_fairseq/patches/**/*.py", ["tests/patches"]),
    "transformers": ("fb_fairseq/transformers/**/*.py", ["tests/transformers"]),
    "pretrained": ("fb_fairseq/pretrained/**/*.py", ["tests/test_pretrained.py"]),
    "commands": ("fb_fairseq/commands/**/*.py", ["tests/commands"]),
    "papers": ("fb_fairseq/papers/**/*.py", ["tests/papers", "tests/examples"]),
    "top": (
        "fb_fairseq/*.py",
        sorted(str(p.relative_to(REPOSITORY)) for p in (REPOSITORY / "tests").glob("test_*.py")),
    ),
}
SNAPSHOTS, COMMANDS = "tests/test_snapshots.py", "tests/cli"  # of all areas
COMPARISONS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "is not": "is",
    "is": "is not",
    "not in": "in",
    "in": "not in",
}
OPERATORS = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "**": "*"}
WORDS = {
    "and": "or",
    "or": "and",
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "True": "False",
    "False": "True",
}
# Calls whose arguments are texts for people.
SPOKEN = re.compile(
    r"\.(warning|info|error|debug|add_argument)$|^(print|UserError|log_once|ValueError|TypeError|option)$"
)
CPP = re.compile(r"(?<![\w<>=!+\-*/&|])(<=|>=|==|!=|<|\+|-|\*|&&|\|\||if \()(?![<>=+\-*/&|])")
CPP_CHANGES = {
    "<=": "<",
    "<": "<=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "+": "-",
    "-": "+",
    "*": "/",
    "&&": "||",
    "||": "&&",
    "if (": "if (!",
}


class Mutation(NamedTuple):
    """A fault: ``old`` at an offset of a file's text becomes ``new``."""

    path: str
    offset: int
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The text with the fault."""
        return text[: self.offset] + self.new + text[self.offset + len(self.old) :]

    def described(self, text: str) -> str:
        """Where it is, and what it changes, in one line."""
        line = text.count("\n", 0, self.offset) + 1
        return f"{self.path}:{line}: {' '.join(self.old.split())!r} -> {' '.join(self.new.split()) or 'nothing'!r}"


def python_mutations(path: str, text: str) -> Iterator[Mutation]:
    """The faults of a file of Python."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines()

    def place(line: int, column: int) -> int:
        """The offset in the text of a column, which ast counts in bytes, of a line."""
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def begin(node) -> int:
        """The offset in the text of a node's first character."""
        return place(node.lineno, node.col_offset)

    def end(node) -> int:
        """The offset in the text of the character after a node."""
        return place(node.end_lineno, node.end_col_offset)

    def between(left, right, changes: dict[str, str]) -> Iterator[Mutation]:
        """A change of the operator between two nodes."""
        found = re.search(r"[^\s()]+( not| in)?", text[end(left) : begin(right)])
        if found and found[0] in changes:
            yield Mutation(path, end(left) + found.start(), found[0], changes[found[0]])

    def of_call(node: ast.Call) -> Iterator[Mutation]:
        """The first two arguments swapped, if their order counts, or one with a name left out."""
        symmetric = re.fullmatch(r"min|max|(?!torch\.).*\.transpose", ast.unparse(node.func), re.DOTALL)
        if len(node.args) >= 2 and not symmetric and not any(isinstance(x, ast.Starred) for x in node.args):
            a, b = node.args[:2]
            both = text[begin(a) : end(b)]
            swapped = text[begin(b) : end(b)] + text[end(a) : begin(b)] + text[begin(a) : end(a)]
            if swapped != both:
                yield Mutation(path, begin(a), both, swapped)
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in ("dtype", "device", "help"):
                comma = re.match(r"\s*,", text[end(keyword) :])
                length = end(keyword) - begin(keyword) + (comma.end() if comma else 0)
                yield Mutation(path, begin(keyword), text[begin(keyword) :][:length], "")

    def visit(node) -> Iterator[Mutation]:
        """The faults of a node and of all nodes in it."""
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)):
            return
        if isinstance(node, ast.Call):
            if SPOKEN.search(ast.unparse(node.func)):
                return
            yield from of_call(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from between(node.left, node.comparators[0], COMPARISONS)
        if isinstance(node, ast.BoolOp):
            yield from between(node.values[0], node.values[1], WORDS)
        if isinstance(node, ast.BinOp):
            yield from between(node.left, node.right, OPERATORS)
        if isinstance(node, (ast.If, ast.IfExp, ast.While)) and not ast.unparse(node.test).startswith("TYPE_CHECKING"):
            test = text[begin(node.test) : end(node.test)]
            yield Mutation(path, begin(node.test), test, f"not ({test})")
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield Mutation(path, begin(node), text[begin(node) : end(node)], f"({node.value!r} + 1)")
        if isinstance(node, ast.Constant) and isinstance(node.value, bool) or isinstance(node, ast.Name):
            word = text[begin(node) : end(node)]
            if word in WORDS:
                yield Mutation(path, begin(node), word, WORDS[word])
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from visit(child)

    yield from visit(ast.parse(text))


def cpp_mutations(path: str, text: str) -> Iterator[Mutation]:
    """The faults of a file of C++: operators and conditions, not in comments, includes, templates or types."""
    offset = 0
    for line in text.splitlines(keepends=True):
        code = line.split("//")[0]
        if not re.match(r"\s*(#|template|using|typedef|struct)", code):
            for found in CPP.finditer(code):
                around = code[found.start() - 1 : found.end() + 1]
                pointer = found[0] == "*" and re.search(r"(float|int\w*|void|Args|const)\s*\*|\(\*|\s\*\w", code)
                if not pointer and (found[0] == "if (" or around.startswith(" ") and around.endswith(" ")):
                    yield Mutation(path, offset + found.start(), found[0], CPP_CHANGES[found[0]])
        offset += len(line)


def draw(area: str, seed: int, number: int) -> list[Mutation]:
    """So many different faults of an area, spread over its files by their length."""
    generator, found = random.Random(f"{area}-{seed}"), []
    for path in sorted(REPOSITORY.glob(AREAS[area][0])):
        text = path.read_text(encoding="utf-8")
        name = str(path.relative_to(REPOSITORY))
        found += (cpp_mutations if area == "cpp" else python_mutations)(name, text)
    return generator.sample(found, min(number, len(found)))


def covering(data, mutation: Mutation, text: str) -> list[str]:
    """The tests, without their parameters, that have run the changed line, and are there now.

    Args:
        data: coverage's ``CoverageData`` of a run of all tests, with each one's name as a context.
        mutation: the fault.
        text: that of its file.
    """
    line = text.count("\n", 0, mutation.offset) + 1
    found: dict[str, None] = {}
    for file in data.measured_files():
        if file.endswith(f"/{mutation.path}"):
            for context in data.contexts_by_lineno(file).get(line, []):
                found[re.split(r"[\[|]", context)[0]] = None
    # Those of commands last: they take longest.
    return sorted(filter(is_there, found), key=lambda test: (test.startswith(f"{COMMANDS}/"), test))


def is_there(test: str) -> bool:
    """Whether there is a test with a name like ``tests/test_docs.py::test_links``."""
    path, _, name = test.partition("::")
    file = REPOSITORY / path
    return bool(name) and file.is_file() and f"def {name.rpartition('::')[2]}(" in file.read_text(encoding="utf-8")


def tests_for(area: str, mutation: Mutation) -> list[str]:
    """The test files of an area, those first that name the changed module; then the snapshots and the commands'."""
    module = pathlib.PurePath(mutation.path).stem
    name = re.compile(
        rf"\b{re.escape(module if module != '__init__' else pathlib.PurePath(mutation.path).parent.name)}\b"
    )

    def files(places: list[str]) -> list[pathlib.Path]:
        found = []
        for place in places:
            path = REPOSITORY / place
            found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        return [str(p.relative_to(REPOSITORY)) for p in sorted(found, key=lambda p: not name.search(p.read_text()))]

    return list(dict.fromkeys(files(AREAS[area][1]) + files([SNAPSHOTS, COMMANDS])))


class FirstFailure:
    """A plugin of pytest that writes the name of the first test that fails to a file."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def note(self, report, more: str = "") -> None:
        """Write a report's name down, if it is the first that failed."""
        if report.failed and not self.path.exists():
            self.path.write_text(report.nodeid + more)

    def pytest_runtest_logreport(self, report) -> None:
        """pytest's, after each test."""
        self.note(report)

    def pytest_collectreport(self, report) -> None:
        """pytest's, after each import."""
        self.note(report, " (import)")


def run_tests(tree: pathlib.Path, arguments: list[str], failure: pathlib.Path) -> NoReturn:
    """Run a tree's tests in this process, in a session of its own; it ends with their exit code.

    Args:
        failure: where to write the first test that fails.
    """
    import pytest

    os.setsid()
    os.chdir(tree)
    sys.path[:] = [str(tree), *(p for p in sys.path if os.path.abspath(p or ".") != str(REPOSITORY))]
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    os.environ["PYTHONPATH"] = str(tree)
    os.environ["FB_FAIRSEQ_CACHE"] = str(tree / "cache")
    output = os.open(tree / "mutations-output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os._exit(int(pytest.main(arguments, plugins=[FirstFailure(failure)])))


def killed_by(tree: pathlib.Path, tests: list[str], options: list[str], seconds: float) -> str | None:
    """Run tests of a tree in a child of this process: the first that fails, or "crash"; None: they pass.

    Raises:
        TimeoutError: they run longer, and none has failed.
    """
    failure = tree / "mutations-report.txt"
    failure.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        run_tests(tree, ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *options, *tests], failure)
    deadline, status = time.monotonic() + seconds, None
    while status is None and time.monotonic() < deadline:
        done, found = os.waitpid(child, os.WNOHANG)
        status = found if done else None
        time.sleep(0.1)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if status is None:
        os.waitpid(child, 0)
    if failure.exists():
        return failure.read_text()
    if status is None:
        raise TimeoutError
    passed = status == 0 or os.waitstatus_to_exitcode(status) == 5  # 5: nothing was collected
    return None if passed else "crash"


def outcome(tree: pathlib.Path, groups: list[list[str]], kinds: list[str], seconds: float) -> tuple[str, str]:
    """The kind of tests that notices a tree's fault, "survived" or "undecided"; and that in words.

    Args:
        groups: the tests, in the order in which they are tried.
        kinds: "usual", and after it "ci" if what survives is to be tried with these tests, too.
        seconds: for each group and kind.
    """
    for kind in kinds:
        for tests in filter(None, groups):
            try:
                by = killed_by(tree, tests, [f"--{kind}"], seconds)
            except TimeoutError:
                return "undecided", f"UNDECIDED after {seconds:g} s ({kind})"
            if by is not None:
                return kind, f"{kind}: {by}"
    return "survived", "SURVIVED"


def main() -> None:
    """Draw the faults, run the tests, print what survives and the shares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--number", type=int, default=24, help="faults in all, as many from each area")
    parser.add_argument("--area", choices=list(AREAS), action="append", help="instead of all areas")
    parser.add_argument("--ci", action="store_true", help="try what survives with the tests of --ci, too")
    parser.add_argument("--covered", metavar="FILE", help="coverage of a run of the tests, see above")
    parser.add_argument("--seconds", type=float, default=120, help="for each run of tests; then undecided")
    options = parser.parse_args()
    areas = options.area or list(AREAS)
    # Imported before the forks, so that each costs seconds; none of this package.
    import fairseq  # noqa: F401
    import pytest  # noqa: F401
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    assert not any(name.split(".")[0] == "fb_fairseq" for name in sys.modules), (
        "this code was imported before the forks"
    )
    covered = None
    if options.covered:
        from coverage import CoverageData

        covered = CoverageData(options.covered)
        covered.read()
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="mutations-"))
    tree = scratch / "tree"
    counts: dict[str, Counter] = {area: Counter() for area in areas}
    try:
        shutil.copytree(REPOSITORY, tree, ignore=shutil.ignore_patterns(".git", ".venv*", "__pycache__", "outputs"))
        for area in areas:
            for mutation in draw(area, options.seed, -(-options.number // len(areas))):
                text = (REPOSITORY / mutation.path).read_text(encoding="utf-8")
                (tree / mutation.path).write_text(mutation.applied(text), encoding="utf-8")
                kinds = ["usual", "ci"] if options.ci else ["usual"]
                groups = [covering(covered, mutation, text) if covered else [], tests_for(area, mutation)]
                found, words = outcome(tree, groups, kinds, options.seconds)
                (tree / mutation.path).write_text(text, encoding="utf-8")
                counts[area][found] += 1
                print(f"{area:12} {words:60} {mutation.described(text)}", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for area, found in counts.items():
        print(
            f"{area:12} {found.total():3} faults: {found['usual']} noticed, {found['ci']} with --ci only, "
            f"{found['survived']} survived, {found['undecided']} undecided"
        )


if __name__ == "__main__":
    main()
