"""The notebooks: stored with their outputs, which show nothing of the machine they ran on; and they run."""

import json
import os
import re
from typing import NamedTuple

import pytest

from fb_fairseq.commands import COMMANDS
from tests.conftest import REPOSITORY


class Notebook(NamedTuple):
    """A notebook in examples/."""

    name: str
    figures: int  # that it draws
    shorter: dict[str, str]  # parts of the code, and what the test runs instead
    needs: tuple[str, ...] = ()  # packages that the other tests do not need

    @property
    def path(self):
        return REPOSITORY / "examples" / self.name


TUTORIAL = Notebook("tutorial.ipynb", 6, {"UPDATES = 500\n": "UPDATES = 20\n"})
TRANSFORMERS = Notebook(
    "transformers.ipynb",
    5,
    {"UPDATES = 500\n": "UPDATES = 10\n", "[-30_000:]": "[-5_000:]", "MAX_STEPS = 60\n": "MAX_STEPS = 5\n"},
    ("transformers", "accelerate"),
)
LARGEST = 500_000  # bytes
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
OF_OTHER_TESTS = re.compile(r"__pycache__|\..*_cache|\.coverage.*")
OF_A_MACHINE = re.compile(r"(?<![\w.])/(?:home|mnt|opt|private|root|tmp|Users|usr|var|work)\b")


each_notebook = pytest.mark.parametrize("notebook", [TUTORIAL, TRANSFORMERS], ids=lambda notebook: notebook.name)


def read(notebook):
    return json.loads(notebook.path.read_text(encoding="utf-8"))


def sources(notebook, kind):
    return ["".join(cell["source"]) for cell in read(notebook)["cells"] if cell["cell_type"] == kind]


def check_outputs(notebook, cells):
    """Neither errors nor anything on stderr, where warnings go; and all figures are there."""
    figures = 0
    for cell in cells:
        for output in cell["outputs"]:
            assert output["output_type"] != "error", output["evalue"]
            assert output.get("name") != "stderr", output["text"]
            figures += "image/png" in output.get("data", {})
    assert figures == notebook.figures


@each_notebook
def test_stored_notebook_is_executed(notebook):
    cells = [cell for cell in read(notebook)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    check_outputs(notebook, cells)


@each_notebook
def test_nothing_of_a_machine(notebook):
    text = notebook.path.read_text(encoding="utf-8")
    assert len(text) < LARGEST
    without_figures = re.sub(r'"image/png": "[^"]*"', "", text)
    assert str(REPOSITORY) not in without_figures and not OF_A_MACHINE.search(without_figures)
    assert "Warning" not in without_figures


@each_notebook
def test_links(notebook):
    texts = sources(notebook, "markdown")
    targets = [target for text in texts for target in LINK.findall(text) if "://" not in target]
    assert targets
    for target in targets:
        assert (notebook.path.parent / target).exists(), target


@each_notebook
def test_commands_exist(notebook):
    text = "\n".join(sources(notebook, "markdown") + sources(notebook, "code"))
    names = re.findall(r"fb-fairseq ([a-z][a-z-]+)|\"fb_fairseq\", \"([a-z][a-z-]+)\"", text)
    assert names and {shell or python for shell, python in names} <= set(COMMANDS)


@each_notebook
def test_imports(notebook):
    imports = re.findall(r"^ *(from fb_fairseq.*|import fb_fairseq.*)", "\n".join(sources(notebook, "code")), re.M)
    assert imports
    exec("\n".join(imports))


def listing(folder):
    """The files of a folder, hidden ones too, without caches and coverage: other tests run at the same time."""
    return {path.name for path in (REPOSITORY / folder).iterdir() if not OF_OTHER_TESTS.fullmatch(path.name)}


CASES = [(TUTORIAL, "."), (TUTORIAL, "examples"), (TRANSFORMERS, "examples")]


@pytest.mark.slow
@pytest.mark.parametrize("notebook, folder", CASES, ids=lambda value: getattr(value, "name", value))
def test_runs(notebook, folder, tmp_path, monkeypatch):
    """In a fresh kernel, with one thread and fewer updates; and it leaves no files behind."""
    import nbformat
    from nbclient import NotebookClient

    for package in notebook.needs:
        pytest.importorskip(package)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # Jupyter without ipywidgets, beside a package that the notebook does not need but transformers imports.
    monkeypatch.setenv("PYTHONWARNINGS", os.environ.get("PYTHONWARNINGS", "") + ",ignore:IProgress not found")
    document = nbformat.read(notebook.path, as_version=4)
    for part, instead in notebook.shorter.items():
        (cell,) = [cell for cell in document.cells if part in cell.source]
        cell.source = cell.source.replace(part, instead)
    files = listing(folder)
    NotebookClient(document, timeout=900, resources={"metadata": {"path": str(REPOSITORY / folder)}}).execute()
    check_outputs(notebook, [cell for cell in document.cells if cell.cell_type == "code"])
    assert listing(folder) == files
    assert not list(tmp_path.glob("*/text"))
