"""Fixtures of the whole suite. ``--slow`` also runs what takes long; ``FB_FAIRSEQ_DATA`` points at real corpora."""

import os
import pathlib

import pytest
import torch

from fb_fairseq.ops.buffers import Buffers

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run what takes long")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes long; run with --slow")
    for kind in ("Deprecation", "Future", "Syntax"):  # fairseq's own
        config.addinivalue_line("filterwarnings", f"ignore::{kind}Warning")
    config.addinivalue_line("filterwarnings", "ignore:.*pin_memory.*")
    config.addinivalue_line("filterwarnings", "ignore:(?s).*ConfigStore schema.*")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Runs in this process and as processes of their own compute with the same number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def empty_is_nan(monkeypatch):
    """Uninitialised memory that is read shows: ``torch.empty``, ``new_empty`` and own buffers are filled with NaN."""
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        make = getattr(owner, name)

        def filled(*args, make=make, **kwargs):
            tensor = make(*args, **kwargs)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        monkeypatch.setattr(owner, name, filled)
    monkeypatch.setattr(Buffers, "poison", True)


@pytest.fixture(scope="session")
def shared_data():
    """Folder of real corpora."""
    folder = os.environ.get("FB_FAIRSEQ_DATA")
    if not folder:
        pytest.skip("FB_FAIRSEQ_DATA is not set: no real corpora")
    return pathlib.Path(folder).resolve()
