"""Allow ``torch.load`` to read the classes that fairseq saves in checkpoints and sends between processes."""

import argparse
import collections
import typing

import numpy as np
import omegaconf
import torch

WEIGHTS_ONLY_BY_DEFAULT = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)

# Types of scalars and arrays that fairseq's meters hold ("U1": strings).
NUMPY_TYPES = (np.float64, np.float32, np.float16, np.int64, np.int32, np.bool_, "U1")


def patch_safe_globals() -> None:
    """Allow the plain classes that fairseq pickles beside tensors; other classes stay refused.

    From 2.6 on, ``torch.load`` loads only weights by default. fairseq's checkpoints also hold an argparse.Namespace
    (named architectures) and numpy scalars (``--eval-bleu``), and OmegaConf containers are broadcast when several
    processes resume.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq declares these classes itself; none does yet.
    """
    if not WEIGHTS_ONLY_BY_DEFAULT:
        return
    from fairseq.distributed.utils import _TensorPlaceholder

    numpy_core = getattr(np, "_core", None) or np.core  # numpy 2, numpy 1
    dtype_classes = {type(np.dtype(name)) for name in NUMPY_TYPES}
    torch.serialization.add_safe_globals(
        [
            argparse.Namespace,
            np.ndarray,
            np.dtype,
            numpy_core.multiarray._reconstruct,
            numpy_core.multiarray.scalar,
            *sorted(dtype_classes, key=str),
            omegaconf.DictConfig,
            omegaconf.ListConfig,
            omegaconf.AnyNode,
            omegaconf.base.ContainerMetadata,
            omegaconf.base.Metadata,
            _TensorPlaceholder,
            (typing.Any, "typing.Any"),  # by name: before Python 3.10, Any has no __name__
            collections.defaultdict,
            dict,
            list,
            int,
        ]
    )
