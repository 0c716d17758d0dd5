"""Names that fairseq uses and numpy 2 has removed."""

from types import SimpleNamespace

import numpy as np


def patch_numpy_long() -> None:
    """Define ``np.compat.long``, which fairseq uses for ``--sample-break-mode eos`` and ``--num-batch-buckets``.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1, both with numpy 2.
    Remove when: a supported fairseq no longer uses it; both do.
    """
    if not hasattr(np, "compat"):
        np.compat = SimpleNamespace()
    if not hasattr(np.compat, "long"):
        np.compat.long = int
