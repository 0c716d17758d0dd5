"""Errors that the user can fix, and how any error is told in one line."""

import errno
import os
from typing import Optional

STATUS = 2  # the exit status after a user's mistake, as argparse's
DEBUG_VARIABLE = "FB_FAIRSEQ_DEBUG"  # set it to 1 to see tracebacks

# Optional packages, and the extra of setup.py that installs them.
EXTRAS = {
    "matplotlib": "plot",
    "tensorboard": "plot",
    "gymnasium": "rl",
    "PIL": "rl",
    "sacremoses": "translation",
    "subword_nmt": "translation",
    "rouge_score": "translation",
    "sacrebleu": "translation",
}

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors in writing, which come without the file's name


class UserError(ValueError):
    """Bad input. The message is one line that names the option or file, and the remedy."""


def flag(name: str) -> str:
    """The command-line spelling of an option: ``decoder_layers`` to ``--decoder-layers``."""
    return f"--{name.replace('_', '-')}"


def debugging() -> bool:
    """Whether tracebacks are asked for."""
    return os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")


def single_line(text: str) -> str:
    """The text with line breaks (of file names, say) written as escapes."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def explain(error: BaseException) -> Optional[str]:
    """One line about an error that input, options or the machine have caused; None if it is a fault in the program."""
    if isinstance(error, UserError):
        return single_line(str(error))
    if isinstance(error, OSError):
        path = error.filename2 or error.filename
        if isinstance(path, (str, bytes)):
            return single_line(f"{os.fsdecode(path)}: {error.strerror}")
        return error.strerror if error.errno in NO_SPACE else None
    if isinstance(error, UnicodeDecodeError):
        return f"the input is not UTF-8 text ({error.reason}); convert it"
    if isinstance(error, ImportError) and error.name in EXTRAS:
        return f"{error.name} is not installed; pip install 'fb_fairseq[{EXTRAS[error.name]}]'"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, on a GPU
        return "out of memory; use smaller sizes"
    return None
