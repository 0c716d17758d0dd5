"""Wheels and source distributions of the clone, built as pip builds them."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

NEEDED = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "CITATION.cff")  # to build a wheel


def clone_in(folder, files=NEEDED, folders=("fb_fairseq",)):
    """A clone in a folder, with some of its files and folders."""
    clone = folder.resolve() / "fb_fairseq"
    clone.mkdir()
    for name in files:
        shutil.copy(REPOSITORY / name, clone)
    for name in folders:
        shutil.copytree(REPOSITORY / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    return clone


def build(kind, clone, folder):
    """A wheel or an sdist, built as pip builds it. Returns its path."""
    program = f"import setuptools.build_meta as backend, sys; backend.build_{kind}(sys.argv[1])"
    run_python(program, clone, folder)
    (built,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def run_python(program, folder, *arguments):
    """Run a program in a folder, without this test run's PYTHONPATH, and return its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of the package."""
    pytest.importorskip("setuptools", minversion="70.1")
    folder = tmp_path_factory.mktemp("wheel")
    return build("wheel", clone_in(folder), folder)
