"""A user's mistakes in one line, in the commands of fairseq."""

import os
import re
import sys
from collections.abc import Callable
from functools import partial

from fb_fairseq.errors import (
    STATUS,
    UserError,
    debugging,
    explain,
    names_an_option,
)
from fb_fairseq.printing import OUTPUT_CLOSED_STATUS, forget_output

# Patterns in ``KindOfError: its message``, or in a message of the parser, and the line to print instead; {1} is the
# pattern's first group. (500 characters of choices: short lists are shown.)
REMEDIES = {
    r"(argument \S+: invalid choice: '.*?') \(choose from .{500}": "{1}; --help lists all",
    r"unrecognized arguments: (.*--(tokens-per-sample|valid-streams)\b.*)": (
        "unrecognized arguments: {1}; give --task streaming_lm, which has such options"
    ),
    # (fairseq and hydra write "Interpolation" and "interpolation".)
    r"nterpolation key 'task\.": (
        "--task: not one for this --arch (without the option it is translation); give --task streaming_lm"
    ),
    r"nterpolation key '(\w*)": "${{{1}}}: fairseq replaces this in a value; give a value without it",
    "optimizer is required": "--optimizer is missing; give one, such as --optimizer adam",
    r"out of range\s+full_key: lr\b": "--lr: is empty; give a number",
    r"out of range\s+full_key: update_freq\b": "--update-freq: is empty; give a number",
    r"Dataset not loaded: (\w+)": (
        "--valid-subset: {1} is not among what --combine-valid-subsets reads: valid, valid1, …; leave one of them out"
    ),
    r"(argument --\S+): invalid <lambda> value: ('.*')": "{1}: {2} is not right; give a number, or several with commas",
    "Seed must be between": "--seed: must be between 0 and 4294967295",
    "not compiled with CUDA|Cannot re-initialize CUDA|CUDA driver init|No CUDA GPUs|no NVIDIA driver": (
        "PyTorch finds no GPU that it can use; add --cpu, and leave out --profile"
    ),
    r"world size is (\d+) but have (\d+) available devices": (
        "--distributed-world-size {1}: this machine has {2} GPUs for it; leave the option out, or start that many "
        "processes with torchrun --nproc-per-node {1} (on CPUs too)"
    ),
    "FloatingPointError: gradients are Nan/Inf": (
        "the gradients are NaN or infinite; try a lower --lr, --clip-norm 1 or more --warmup-updates"
    ),
    "Could not infer language pair": (
        "no data of a pair of languages in the folder; give that of fairseq-preprocess, or --source-lang and "
        "--target-lang"
    ),
    r"Cannot load model parameters from checkpoint (.+); please": (
        "{1}: has the parameters of another model; give the options of its training, or another --save-dir"
    ),
    r"Dataset not found: (\S+) \((.+)\)": (
        "{2}: the split {1} is missing; check the folder and --train-subset, --valid-subset or --gen-subset"
    ),
}
HYDRA_COMMAND = "fairseq_cli.hydra_train"
# A UserError in the traceback of a process, which torch.multiprocessing.spawn makes the message of its own exception.
FROM_SPAWNED_PROCESS = re.compile(rf"^{UserError.__module__}\.{UserError.__qualname__}: (.+)$", re.MULTILINE)


def remedy_of(message: str) -> str | None:
    """The line for a message, of ``REMEDIES``."""
    for pattern, line in REMEDIES.items():
        found = re.search(pattern, message)
        if found:
            return line.format(found[0], *found.groups())
    return None


def patch_error_lines() -> None:
    """Print one line and exit with status 2 on errors that the user can fix; ``FB_FAIRSEQ_DEBUG=1`` shows tracebacks.

    Only in programs that run one of fairseq's commands. hydra would print its own traceback, which fails on Python
    3.10, unless it is told to pass errors on.
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
    """The line for a user's mistake, or fairseq's own message if it is one line that names an option. None: show the
    traceback.

    The mistake may be an earlier error, during whose handling this one was raised: fairseq replaces the errors of
    loading a checkpoint; after NaN gradients it repeats the update, which may fail again. It may also come from a
    process that ``torch.multiprocessing`` has started.
    """
    errors = [error]
    while errors[-1].__context__ is not None:
        errors.append(errors[-1].__context__)
    mistake = next((one for one in errors if isinstance(one, UserError)), error)
    lines = [explain(mistake), *FROM_SPAWNED_PROCESS.findall(str(error))[-1:]]
    lines += [remedy_of(f"{type(one).__name__}: {one}") for one in errors]
    if names_an_option(error):
        lines.append(str(error))
    return next(filter(None, lines), None)
