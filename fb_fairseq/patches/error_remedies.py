"""What to do about errors of fairseq and PyTorch whose own messages do not say it."""

import re
from typing import NamedTuple, Optional

from fb_fairseq.patches.early_errors import given_options, option_at_fault, updates_done


class Remedy(NamedTuple):
    """An entry of the table.

    Attributes:
        pattern: what to find in ``KindOfError: its message``.
        line: what to say instead; ``{1}`` is the pattern's first group, ``{option}`` the option that the error comes
            from, ``{update}`` the number of the update that failed.
        option: without this option the entry does not apply.
    """

    pattern: str
    line: str
    option: Optional[str] = None


NO_GPU = (
    "Cannot re-initialize CUDA|not compiled with CUDA|CUDA driver initialization failed|no NVIDIA driver|No CUDA GPUs"
)
REMEDIES = (
    Remedy(
        "FloatingPointError: gradients are Nan/Inf",
        "the gradients are NaN or infinite at update {update}; try a lower --lr, --clip-norm 1 or more "
        "--warmup-updates",
    ),
    Remedy(
        r"world size is (\d+) but have (\d+) available devices",
        "--distributed-world-size {1}: this machine has {2} GPUs for it; leave the option out, or start that many "
        "processes with torchrun --nproc-per-node {1} (on CPUs too)",
    ),
    Remedy("'NoneType' object has no attribute 'xla", "--tpu: torch_xla is not installed; leave the option out"),
    Remedy(NO_GPU, "--profile: needs a GPU that PyTorch can use; leave the option out", "profile"),
    Remedy(NO_GPU, "{option}: PyTorch finds no GPU that it can use; add --cpu"),
    Remedy(
        "Cannot combine manual lr and relative_step",
        "--relative-step: fairseq always gives adafactor a learning rate, --lr; leave the option out",
    ),
    Remedy(
        "modified by an inplace operation.*LogSoftmax",
        "--adaptive-softmax-cutoff: needs --criterion adaptive_loss in this task",
        "adaptive_softmax_cutoff",
    ),
    Remedy(
        "The dataset is empty",
        "all samples of the split are left out; they may be longer than --max-source-positions, "
        "--max-target-positions, --tokens-per-sample or --max-tokens: give more",
    ),
    Remedy("KeyError: 'ema'", "{option}: the checkpoint has no EMA; give one that was trained with --store-ema"),
    Remedy(
        "Could not (?:find|load) '?(bpe|tokenizer)/(.+?)['.]",
        "--{1} {2}: fairseq's commands cannot use it; choose another, or process the text before",
    ),
    Remedy(
        r"(?:ConnectionError|URLError|MaxRetryError|LocalEntryNotFoundError)\b",
        "{option}: needs a file from the internet, which cannot be reached; give a local file",
    ),
)


def remedy(error: BaseException, traceback=None) -> Optional[str]:
    """The line of the first entry that applies to an error, or to one in whose handling it was raised; None if none
    does. (After NaN gradients, fairseq repeats the update to log where they come from, and may fail in that.)"""
    text = f"{type(error).__name__}: {error}"
    for entry in REMEDIES:
        found = re.search(entry.pattern, text, re.DOTALL)
        if found and (entry.option is None or entry.option in given_options()):
            values = {"option": option_at_fault(error, traceback), "update": updates_done(traceback) + 1}
            line = entry.line if values["option"] else entry.line.replace("{option}: ", "")
            return line.format(found[0], *found.groups(), **values)
    before = error.__context__
    return None if before is None else remedy(before, before.__traceback__)
