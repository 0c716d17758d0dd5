"""Options, markers and fixtures of the whole suite.

``--fast`` leaves out the tests marked ``not_fast`` and everything in ``tests/cli``. ``--ci`` also runs those of
``ON_CI`` and those marked ``on_ci``, ``--slow`` those marked ``slow``, too. Files named on the command line are run as
with ``--ci``, with ``--usual`` as without. The environment variable ``FB_FAIRSEQ_DATA`` names a folder of real corpora.
"""

import contextlib
import gc
import os
import pathlib
import platform
from importlib import metadata

import pytest
import torch

from fb_fairseq.ops.buffers import Buffers
from tests.surroundings import heed_interrupts, limit_waits, writable_home

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# Files whose tests take longest, which start first: so no process is left with one of them at the end.
LONGEST = (
    "cli/test_pages.py",
    "ops/feedback/test_triton.py",
    "cli/test_refusals.py",
    "cli/test_recipes.py",
    "cli/test_interruption.py",
    "cli/test_resume.py",
    "cli/test_translation.py",
    "cli/test_training.py",
    "test_install.py",
    "cli/test_bptt_warmup.py",
    "cli/test_distributed.py",
    "papers/benchmark/test_table5.py",
    "cli/test_finetuning.py",
    "examples/test_notebooks.py",
)
# Files and folders that only --ci and --slow run: benchmarks, recipes, the programs of README and docs, installing, and
# other libraries.
ON_CI = {
    "examples",
    "test_install.py",
    "transformers/test_lm_eval.py",
    "transformers/test_trainer.py",
    "transformers/test_versions.py",
    "models/test_compiled.py",
    *(
        f"cli/test_{name}.py"
        for name in "around_the_loop background benchmark_scripts finished_runs hydra "
        "pages plain_torch precision recipe_pages recipes scripts".split()
    ),
}
# The packages whose releases decide what a run of the tests shows.
RELEASES = (
    "fairseq",
    "fairseq-fixed",
    "hydra-core",
    "omegaconf",
    "torch",
    "triton",
    "numpy",
    "transformers",
    "tokenizers",
    "accelerate",
    "lm-eval",
    "gradio",
    "sacrebleu",
    "pytest",
)


def on_ci(*values):
    """A parameter set of a test that only ``--ci`` and ``--slow`` run."""
    return pytest.param(*values, marks=pytest.mark.on_ci)


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="unit tests only: no whole commands, nothing that takes long")
    parser.addoption("--ci", action="store_true", help="also run pages, recipes and experiments, as CI does")
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")
    parser.addoption("--usual", action="store_true", help="of named files, only what is run without --ci and --slow")


def pytest_configure(config):
    if sum(map(config.getoption, ("--fast", "--ci", "--slow"))) > 1:
        raise pytest.UsageError("--fast, --ci, --slow: give one of them")
    heed_interrupts()
    limit_waits()
    writable_home()
    config.addinivalue_line("markers", "not_fast: runs a whole command or takes seconds; left out by --fast")
    config.addinivalue_line("markers", "on_ci: a variant of another test; run only with --ci or --slow")
    config.addinivalue_line("markers", "slow: takes a minute or more; run only with --slow")
    for kind in ("Deprecation", "Future", "Syntax"):  # raised in fairseq's own code
        config.addinivalue_line("filterwarnings", f"ignore::{kind}Warning")
    config.addinivalue_line("filterwarnings", "ignore:.*pin_memory.*")
    config.addinivalue_line("filterwarnings", "ignore:(?s).*ConfigStore schema.*")
    if is_whole(config) and not config.getoption("--fast") and config.getoption("numprocesses", None):
        # One for all processes of pytest-xdist, which get ready meanwhile.
        from tests.cli import command_server

        config.command_server = command_server.CommandServer()
        os.environ[command_server.SHARED] = str(config.command_server.folder)


def pytest_unconfigure(config):
    if hasattr(config, "command_server"):
        config.command_server.__exit__()


def is_whole(config) -> bool:
    """Whether no file or folder of tests is named."""
    return [pathlib.Path(argument).resolve() for argument in config.args] == [REPOSITORY / "tests"]


def is_short(config) -> bool:
    """Whether tests are left out that ``--ci`` and ``--slow`` run."""
    if config.getoption("--usual"):
        return True
    return is_whole(config) and not (config.getoption("--ci") or config.getoption("--slow"))


def left_out_paths(config) -> set[pathlib.Path]:
    """The files and folders that are not run."""
    names = set(ON_CI) if is_short(config) else set()
    if config.getoption("--fast"):
        names.add("cli")
    return {REPOSITORY / "tests" / name for name in names}


def pytest_ignore_collect(collection_path, config):
    """Do not even import what is not run. (pytest does not ask for files that are named.)"""
    return True if collection_path in left_out_paths(config) else None


def pytest_collection_modifyitems(config, items):
    if is_whole(config):
        order = {REPOSITORY / "tests" / name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: order.get(item.path, len(order)))
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))
    marks = {"on_ci"} if is_short(config) else set()
    if config.getoption("--fast"):
        marks = {"not_fast", "slow", "on_ci"}
    kept = []
    left_out = []
    paths = left_out_paths(config)
    for item in items:
        marked = any(map(item.get_closest_marker, marks)) or not paths.isdisjoint([item.path, *item.path.parents])
        (left_out if marked else kept).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept
    if not config.getoption("--slow"):
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
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty"), (Buffers, "empty")):
        make = getattr(owner, name)

        def filled(*args, make=make, **kwargs):
            tensor = make(*args, **kwargs)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        monkeypatch.setattr(owner, name, filled)


@pytest.fixture
def meta_device(monkeypatch):
    """Let blocks run on the device "meta", for which there is no autocast."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device: False)
    monkeypatch.setattr(torch, "autocast", lambda *arguments, **options: contextlib.nullcontext())


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real corpora that ``FB_FAIRSEQ_DATA`` names."""
    folder = os.environ.get("FB_FAIRSEQ_DATA")
    if not folder:
        pytest.skip("FB_FAIRSEQ_DATA is not set: no real corpora")
    return pathlib.Path(folder).resolve()
