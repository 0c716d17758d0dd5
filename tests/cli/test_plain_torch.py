"""The program of docs/plain-torch.md: it runs, and its types are those that the page tells."""

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.cli.page_blocks import Clone, program
from tests.conftest import REPOSITORY

PAGE = "docs/plain-torch.md"
# How the blocks begin that need packages which are not in the environment of the tests.
NEEDS = {"trl": "from datasets import Dataset", "lightning": "import lightning"}


def test_plain_torch(commands, tmp_path, monkeypatch):
    """In an empty folder, on less text, and without fairseq."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    not_runnable = [block for package, block in NEEDS.items() if importlib.util.find_spec(package) is None]
    text = program(PAGE, *not_runnable).replace(".read_bytes()", ".read_bytes()[:9000]").replace("=60,", "=6,")
    text += "\nimport sys; print('fairseq' in sys.modules)"
    printed = Clone(tmp_path, commands, sys.executable).run("python", text).splitlines()
    first, last, *lightning = (float(line.split()[0]) for line in printed if " bits per byte" in line)
    assert 2 < last < first < 5 and printed[-1] == "False"
    assert all(abs(again - first) < 0.5 for again in lightning), "the first loop, from other parameters"


@pytest.mark.slow
def test_types_of_plain_torch(tmp_path):
    """mypy finds the mistake that the page names, and no other one."""
    pytest.importorskip("mypy")
    lines = [*program(PAGE).splitlines(), "TransformerOptions(decoder_layer=2)"]
    (tmp_path / "page.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--follow-imports=silent", "page.py"]
    environment = {**os.environ, "MYPYPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    (mistake,) = (line for line in done.stdout.splitlines() if ": error: " in line)
    assert f"page.py:{len(lines)}: " in mistake and '"decoder_layer"' in mistake
