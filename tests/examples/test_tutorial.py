"""The tutorial notebook: stored with its outputs, which show nothing of the machine it ran on; and it runs."""

import json
import re
import sys

import pytest

from fb_fairseq.commands import COMMANDS
from tests.conftest import REPOSITORY

NOTEBOOK = REPOSITORY / "examples/tutorial.ipynb"
LARGEST = 500_000  # bytes
FIGURES = 6
UPDATES = "UPDATES = 500\n"
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
OF_A_MACHINE = re.compile(r"(?<![\w.])/(?:home|private|root|tmp|Users|work)\b")


def read():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def sources(kind):
    return ["".join(cell["source"]) for cell in read()["cells"] if cell["cell_type"] == kind]


def check_outputs(cells):
    """Neither errors nor anything on stderr, where warnings go; and all figures are there."""
    figures = 0
    for cell in cells:
        for output in cell["outputs"]:
            assert output["output_type"] != "error", output["evalue"]
            assert output.get("name") != "stderr", output["text"]
            figures += "image/png" in output.get("data", {})
    assert figures == FIGURES


def test_stored_notebook_is_executed():
    cells = [cell for cell in read()["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    check_outputs(cells)


def test_nothing_of_this_machine():
    text = NOTEBOOK.read_text(encoding="utf-8")
    without_figures = re.sub(r'"image/png": "[^"]*"', "", text)
    for path in (str(REPOSITORY), sys.prefix):
        assert path not in text
    assert not OF_A_MACHINE.search(without_figures)
    assert "Warning" not in without_figures
    assert len(text) < LARGEST


def test_links():
    targets = [target for text in sources("markdown") for target in LINK.findall(text) if "://" not in target]
    assert targets
    for target in targets:
        assert (NOTEBOOK.parent / target).exists(), target


def test_commands_exist():
    text = "\n".join(sources("markdown") + sources("code"))
    names = re.findall(r"python -m fb_fairseq ([a-z][a-z-]+)|\"fb_fairseq\", \"([a-z][a-z-]+)\"", text)
    assert names and {shell or python for shell, python in names} <= set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("folder", [".", "examples"])
def test_runs(folder, tmp_path, monkeypatch):
    """In a fresh kernel, with fewer updates; and it leaves no files in the repository."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (training,) = [cell for cell in notebook.cells if UPDATES in cell.source]
    training.source = training.source.replace(UPDATES, "UPDATES = 20\n")
    NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(REPOSITORY / folder)}}).execute()
    check_outputs([cell for cell in notebook.cells if cell.cell_type == "code"])
    assert not any((REPOSITORY / folder / name).exists() for name in ("data", "text", "feedback_transformer_lm"))
    assert not list(tmp_path.glob("*/feedback_transformer_lm"))
