"""The scripts of examples/benchmark as modules."""

import importlib

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture
def script(monkeypatch):
    """Imports a script of examples/benchmark by its name."""
    monkeypatch.syspath_prepend(REPOSITORY / "examples/benchmark")
    return importlib.import_module
