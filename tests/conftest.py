"""Options, markers and fixtures of the whole suite.

``--fast`` leaves out the tests marked ``not_fast`` and everything in ``tests/cli``; ``--slow`` also runs those marked
``slow``. The environment variable ``FB_FAIRSEQ_DATA`` names a folder of real corpora.
"""

import gc
import os
import pathlib
import platform
from importlib import metadata

import pytest
import torch

from fb_fairseq.ops.threads import Buffers
from tests.surroundings import heed_interrupts, limit_waits, writable_home

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# Files whose tests take longest, which start first: so no process is left with one of them at the end.
LONGEST = (
    *("cli/test_pages.py", "ops/feedback/test_triton.py", "cli/test_refusals.py", "cli/test_recipes.py"),
    *("cli/test_quickstart.py", "cli/test_resume.py", "cli/test_translation.py", "cli/test_training.py"),
    *("cli/test_synthetic_tasks.py", "cli/test_translation_recipes.py", "test_install.py", "ops/test_fake_gpu.py"),
    *("cli/test_bptt_warmup.py", "cli/test_distributed.py", "papers/test_table5.py", "cli/test_finetuning.py"),
    "examples/test_tutorial.py",
)
# The packages whose releases decide what a run of the tests shows.
RELEASES = (
    *("fairseq", "fairseq-fixed", "hydra-core", "omegaconf", "torch", "triton", "numpy"),
    *("transformers", "tokenizers", "accelerate", "lm-eval", "gymnasium", "gradio", "sacrebleu", "pytest"),
)


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="unit tests only: no whole commands, nothing that takes long")
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")


def pytest_configure(config):
    if config.getoption("--fast") and config.getoption("--slow"):
        raise pytest.UsageError("--fast, --slow: give one of them")
    heed_interrupts()
    limit_waits()
    writable_home()
    config.addinivalue_line("markers", "not_fast: runs a whole command or takes seconds; left out by --fast")
    config.addinivalue_line("markers", "slow: takes a minute or more; run only with --slow")
    for kind in ("Deprecation", "Future", "Syntax"):  # raised in fairseq's own code
        config.addinivalue_line("filterwarnings", f"ignore::{kind}Warning")
    config.addinivalue_line("filterwarnings", "ignore:.*pin_memory.*")
    config.addinivalue_line("filterwarnings", "ignore:(?s).*ConfigStore schema.*")


def pytest_ignore_collect(collection_path, config):
    """With ``--fast``, do not even import ``tests/cli``, all of which runs whole commands."""
    return True if config.getoption("--fast") and collection_path == REPOSITORY / "tests/cli" else None


def pytest_collection_modifyitems(config, items):
    order = {REPOSITORY / "tests" / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))
    if config.getoption("--fast"):
        kept, left_out = [], []
        for item in items:
            marked = item.get_closest_marker("not_fast") or item.get_closest_marker("slow")
            (left_out if marked else kept).append(item)
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
    elif not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


def pytest_terminal_summary(terminalreporter):
    """Say which releases the tests ran with."""
    found = []
    for name in RELEASES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            pass
    terminalreporter.write_line(f"Python {platform.python_version()}, {', '.join(found)}")


def pytest_collection_finish():
    """Garbage collections skip what has been imported so far: each takes a third of a second otherwise."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def torch_threads():
    """For tests that set torch's number of threads: as before afterwards."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Compute with one thread, as the commands that tests start do, so that results are equal to the last bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def empty_is_nan(monkeypatch):
    """Fill ``torch.empty``, ``new_empty`` and ``Buffers`` with NaN, so that reading uninitialised memory shows."""
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        make = getattr(owner, name)

        def filled(*args, make=make, **kwargs):
            tensor = make(*args, **kwargs)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        monkeypatch.setattr(owner, name, filled)
    monkeypatch.setattr(Buffers, "poison", True)


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real corpora that ``FB_FAIRSEQ_DATA`` names."""
    folder = os.environ.get("FB_FAIRSEQ_DATA")
    if not folder:
        pytest.skip("FB_FAIRSEQ_DATA is not set: no real corpora")
    return pathlib.Path(folder).resolve()
