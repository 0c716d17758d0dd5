"""Report a user's mistake in one line, in fairseq's commands too."""

import os
import re
import sys
from collections.abc import Callable
from functools import partial

import numpy as np

from fb_fairseq.errors import (
    OUTPUT_CLOSED_STATUS,
    STATUS,
    UserError,
    debugging,
    explain,
    forget_output,
    names_an_option,
)
from fb_fairseq.patches.wrapping import wrap_once

# What to find in ``KindOfError: its message``, and what to say instead; {1} is the pattern's first group.
REMEDIES = {
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
    r"Dataset not found: (\S+) \((.+)\)": (
        "{2}: the split {1} is missing; check the folder and --train-subset, --valid-subset or --gen-subset"
    ),
}
HYDRA_COMMAND = "fairseq_cli.hydra_train"
# In the traceback that torch.multiprocessing.spawn makes the message of its own exception.
FROM_SPAWNED_PROCESS = re.compile(rf"^{UserError.__module__}\.{UserError.__qualname__}: (.+)$", re.MULTILINE)


def remedy(error: BaseException) -> str | None:
    """The line for an error, or for one in whose handling it was raised. (After NaN gradients, fairseq repeats the
    update to log where they come from, and may fail in that.)"""
    for pattern, line in REMEDIES.items():
        found = re.search(pattern, f"{type(error).__name__}: {error}")
        if found:
            return line.format(found[0], *found.groups())
    return None if error.__context__ is None else remedy(error.__context__)


def patch_empty_splits() -> None:
    """Name the split of which no sample is left, and the option that leaves them out.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1, which only say that the dataset is empty.
    Remove when: a supported fairseq names the split; none does yet."""
    from fairseq.tasks import FairseqTask

    wrap_once(FairseqTask, "filter_indices_by_size", "empty_splits", _filter)


def _filter(original, self, indices, dataset, max_positions=None, *args, **kwargs):
    kept = original(self, indices, dataset, max_positions, *args, **kwargs)
    if len(indices) and not len(kept):
        split = next((name for name, known in self.datasets.items() if known is dataset), "the split")
        limits = max_positions if isinstance(max_positions, tuple) else (max_positions,)
        names = ("source", "target") if len(limits) == 2 else ("target",)
        found = zip(names, np.ravel(dataset.size(indices[0])), limits)
        options = [f"--max-{name}-positions" for name, size, limit in found if size > (limit or size)]
        raise UserError(
            f"{split}: all {len(indices)} samples are longer than {max_positions} tokens, and left out; give more with "
            f"{' and '.join(options)}, or --max-tokens"
        )
    return kept


def patch_error_lines() -> None:
    """Print one line and exit with status 2 on errors that the user can fix; ``FB_FAIRSEQ_DEBUG=1`` shows tracebacks.

    Only in programs that run one of fairseq's commands. hydra would print its own traceback, which fails on Python
    3.10, unless it is told to pass errors on.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: never; fairseq has no errors that are meant for users."""
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
