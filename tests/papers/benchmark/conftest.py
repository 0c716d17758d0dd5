"""The scripts of examples/ as modules."""

import importlib

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture
def script(monkeypatch):
    """Imports a script of examples/benchmark, or of another folder of examples."""

    def load(name, folder="benchmark"):
        monkeypatch.syspath_prepend(REPOSITORY / "examples" / folder)
        return importlib.import_module(name)

    return load
