"""Report a user's mistake in one line, in fairseq's commands too."""

import os
import re
import sys
from collections.abc import Callable
from functools import partial

from fb_fairseq.errors import (
    OUTPUT_CLOSED_STATUS,
    STATUS,
    UserError,
    debugging,
    explain,
    forget_output,
    names_an_option,
)
from fb_fairseq.patches.error_remedies import remedy

HYDRA_COMMAND = "fairseq_cli.hydra_train"
# In the traceback that torch.multiprocessing.spawn makes the message of its own exception.
FROM_SPAWNED_PROCESS = re.compile(rf"^{UserError.__module__}\.{UserError.__qualname__}: (.+)$", re.MULTILINE)


def patch_error_lines() -> None:
    """Print one line and exit with status 2 on errors that the user can fix; ``FB_FAIRSEQ_DEBUG=1`` shows tracebacks.

    Only in programs that run one of fairseq's commands. hydra would print its own traceback, which fails on Python
    3.10, unless it is told to pass errors on.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: never; fairseq has no errors that are meant for users.
    """
    is_installed = isinstance(sys.excepthook, partial) and sys.excepthook.func is report
    if not is_installed and any(name.startswith("fairseq_cli.") for name in sys.modules):
        sys.excepthook = partial(report, sys.excepthook)
    if HYDRA_COMMAND in sys.modules:
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")


def report(original: Callable, kind, error, traceback) -> None:
    """An ``excepthook``: one line for a user's mistake, the original hook's report for everything else."""
    if isinstance(error, BrokenPipeError):
        forget_output()
        raise SystemExit(OUTPUT_CLOSED_STATUS)
    line = one_line(error)
    if line is None or debugging() or hasattr(sys, "ps1"):  # interactive
        original(kind, error, traceback)
        return
    sys.stdout.flush()
    # Not sys.stderr: torch.distributed wraps this hook, and keeps what it writes until the hook returns.
    print(f"{os.path.basename(sys.argv[0])}: error: {line}", file=sys.__stderr__, flush=True)
    sys.unraisablehook = lambda unraisable: None  # errors of objects that were half built say nothing more
    raise SystemExit(STATUS)  # Python exits with this status


def one_line(error: BaseException) -> str | None:
    """The line of ``explain``, also for an error in a process that ``torch.multiprocessing`` has started; that of
    ``remedy``; or fairseq's own message if it is one line that names an option. None: show the traceback."""
    from_process = FROM_SPAWNED_PROCESS.findall(str(error))
    line = explain(error) or (from_process[-1] if from_process else remedy(error))
    return line or (str(error) if names_an_option(error) else None)
