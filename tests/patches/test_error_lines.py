"""Errors of fairseq and PyTorch: what the user reads of them."""

import re

import pytest

from fb_fairseq import patches  # noqa: F401  before fairseq is used
from fb_fairseq.errors import OUTPUT_CLOSED_STATUS, UserError, explain
from fb_fairseq.patches.error_lines import one_line, report


@pytest.mark.parametrize(
    "error,line",
    [
        (RuntimeError("Torch not compiled with CUDA enabled"), "no GPU .* add --cpu"),
        (KeyError("Dataset not loaded: test"), "--valid-subset: test is not among what --combine-valid-subsets reads"),
        (Exception("Could not infer language pair, please provide it explicitly"), "give that of fairseq-preprocess"),
    ],
)
def test_mistakes_of_new_users(error, line):
    assert re.search(line, one_line(error))
    later = StopIteration()
    later.__context__ = error  # raised while fairseq looks where a NaN comes from
    assert one_line(later) == one_line(error)
    later = Exception("Cannot load model parameters from checkpoint x.pt; please ensure that the architectures match.")
    assert one_line(later).startswith("x.pt: has the parameters of another model")
    later.__context__ = UserError("x.pt: is damaged")
    assert one_line(later) == "x.pt: is damaged"


@pytest.mark.parametrize(
    "error,line",
    [
        (UserError("--a b: c"), "--a b: c"),
        (FileNotFoundError(2, "No such file", "a\nb"), "a\\nb: No such file"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 4 bytes"), "out of memory; use smaller sizes"),
        (AssertionError("--sampling-topk requires --sampling"), "--sampling-topk requires --sampling"),
        (MemoryError(), "out of memory; use smaller sizes"),
        *((kind("a scheduler's"), None) for kind in (AssertionError, KeyError, RuntimeError, ValueError)),
        (RuntimeError("--x is mentioned"), None),
        (ConnectionRefusedError(111, "refused"), None),
    ],
)
def test_which_errors_are_the_users(error, line):
    assert one_line(error) == line


@pytest.mark.parametrize(
    "error,line",
    [
        (ModuleNotFoundError("", name="torch.nosuch"), None),  # torch is there
        (ImportError("cannot import name 'x' from 'y'"), None),
        (ModuleNotFoundError("", name="PIL"), "PIL is not installed; pip install 'fb_fairseq[rl]'"),
        (RuntimeError("Storage size calculation overflowed"), "out of memory"),
    ],
)
def test_packages_and_memory(error, line):
    assert explain(error) is None if line is None else line in explain(error)


def test_a_closed_output_is_no_error(monkeypatch):
    forgotten = []
    monkeypatch.setattr("fb_fairseq.patches.error_lines.forget_output", lambda: forgotten.append(1))
    with pytest.raises(SystemExit) as stop:
        report(lambda *unused: pytest.fail("printed"), BrokenPipeError, BrokenPipeError(32, "Broken pipe"), None)
    assert stop.value.code == OUTPUT_CLOSED_STATUS and forgotten
