"""Runs modules of ``fb_fairseq/papers`` as programs, in this process."""

import contextlib
import io
import runpy
import sys
import warnings
from typing import NamedTuple
from unittest import mock


class Done(NamedTuple):
    """How a program ended."""

    status: int
    out: str
    errors: str


def run_module(name: str, *arguments) -> Done:
    """Run ``python -m fb_fairseq.papers.NAME`` with these arguments."""
    status = 0
    out = io.StringIO()
    errors = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the module may have been imported before
        with mock.patch.object(sys, "argv", [name, *map(str, arguments)]):
            try:
                runpy.run_module(f"fb_fairseq.papers.{name}", run_name="__main__")
            except SystemExit as stop:
                status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
                if isinstance(stop.code, str):
                    print(stop.code, file=errors)
    return Done(status, out.getvalue(), errors.getvalue())
