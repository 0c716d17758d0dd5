"""Errors of fairseq and PyTorch: what the user reads of them."""

import re

import pytest

from fb_fairseq import patches  # noqa: F401  before fairseq is used
from fb_fairseq.errors import UserError
from fb_fairseq.patches.error_lines import one_line, report
from fb_fairseq.printing import OUTPUT_CLOSED_STATUS

ANOTHER_MODEL = "Cannot load model parameters from checkpoint x.pt; please ensure that the architectures match."


@pytest.mark.parametrize(
    "error,line",
    [
        (RuntimeError("Torch not compiled with CUDA enabled"), "no GPU .* add --cpu"),
        (KeyError("Dataset not loaded: test"), "--valid-subset: test is not among what --combine-valid-subsets reads"),
        (Exception("Could not infer language pair, please provide it explicitly"), "give that of fairseq-preprocess"),
        (Exception(ANOTHER_MODEL), "^x.pt: has the parameters of another model"),
    ],
)
def test_remedies(error, line):
    """Also if fairseq has raised another error since, while it looked where a NaN comes from."""
    assert re.search(line, one_line(error))
    later = StopIteration()
    later.__context__ = error
    assert one_line(later) == one_line(error)


def test_what_this_package_has_found_comes_first():
    """fairseq replaces the errors of loading a checkpoint by its own."""
    later = Exception(ANOTHER_MODEL)
    later.__context__ = UserError("x.pt: is damaged")
    assert one_line(later) == "x.pt: is damaged"


@pytest.mark.parametrize(
    "error,line",
    [
        (UserError("--a b: c"), "--a b: c"),
        (FileNotFoundError(2, "No such file", "a\nb"), "a\\nb: No such file"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (MemoryError(), "out of memory; use smaller sizes"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 4 bytes"), "out of memory; use smaller sizes"),
        (RuntimeError("Storage size calculation overflowed"), "out of memory; use smaller sizes"),
        (AssertionError("--sampling-topk requires --sampling"), "--sampling-topk requires --sampling"),
        (ModuleNotFoundError("", name="PIL"), "PIL is not installed; pip install 'fb_fairseq[rl]'"),
    ],
)
def test_errors_of_users(error, line):
    assert one_line(error) == line


def test_errors_of_processes():
    """Of those that were raised while others were handled, the last one."""
    raised = f"{UserError.__module__}.{UserError.__qualname__}"
    text = f"Traceback:\n{raised}: the first\n\nDuring handling:\n{raised}: the last\n"
    assert one_line(RuntimeError(text)) == "the last"


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("a scheduler's"),
        KeyError("a scheduler's"),
        ValueError("a scheduler's"),
        RuntimeError("--x is mentioned"),
        ConnectionRefusedError(111, "refused"),
        ModuleNotFoundError("torch is there", name="torch.nosuch"),
        ImportError("cannot import name 'x' from 'omegaconf'", name="omegaconf"),
    ],
)
def test_faults_of_programs(error):
    """They keep their traceback."""
    assert one_line(error) is None


def test_faults_are_left_to_the_hook_that_was_there_before():
    seen = []
    error = KeyError("a fault")
    report(lambda *given: seen.append(given), KeyError, error, "traceback")
    assert seen == [(KeyError, error, "traceback")]


def test_a_closed_output_is_no_error(monkeypatch):
    forgotten = []
    monkeypatch.setattr("fb_fairseq.patches.error_lines.forget_output", lambda: forgotten.append(1))
    with pytest.raises(SystemExit) as stop:
        report(lambda *unused: pytest.fail("printed"), BrokenPipeError, BrokenPipeError(32, "Broken pipe"), None)
    assert stop.value.code == OUTPUT_CLOSED_STATUS and forgotten
