"""Feedback Transformer and All-attention networks for fairseq.

Use it as a fairseq plugin: ``fairseq-train --user-dir fb_fairseq --arch feedback_transformer_lm …``.
fairseq itself imports ``fb_fairseq.tasks`` and ``fb_fairseq.models``. This file imports neither, so that
``fb_fairseq.ops`` and ``fb_fairseq.modules`` run with torch alone.
"""

import importlib
import os

__version__ = "0.1.0"


class _UserDir(list):
    """The package's path. If the package is imported already, fairseq's ``--user-dir`` only asks whether its folder is
    in here, and imports neither tasks nor models: so the question imports them."""

    def __contains__(self, folder: object) -> bool:
        found = any(os.path.realpath(str(folder)) == os.path.realpath(own) for own in self)
        if found:
            for name in ("tasks", "models"):
                importlib.import_module(f"{__name__}.{name}")
        return found


__path__ = _UserDir(__path__)
