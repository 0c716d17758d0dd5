"""Makes transformers usable beside a torchaudio that cannot be imported. To be imported before anything of it.

fairseq requires torchaudio, and transformers imports it wherever it is installed, even for ``Trainer`` and ``pipeline``
on text. But the last release, 2.11, refuses to run beside a torch of another CUDA version (as 2.15 is).
"""

import importlib
import importlib.util

from transformers import utils
from transformers.utils import import_utils


def ignore_broken_torchaudio() -> None:
    """Tell transformers that there is no torchaudio, if it cannot be imported."""
    if importlib.util.find_spec("torchaudio") is None:
        return
    try:
        importlib.import_module("torchaudio")
    except Exception:  # RuntimeError, or whatever its libraries raise
        for module in (utils, import_utils):
            module.is_torchaudio_available = lambda: False


ignore_broken_torchaudio()
