"""Let ``torch.load`` read data only: tensors, and the plain classes that fairseq saves and sends between processes."""

import argparse
import collections
import typing
from typing import Any

import omegaconf
import torch

from fb_fairseq.patches.numpy_values import STAND_INS
from fb_fairseq.patches.wrapping import wrap_once

WEIGHTS_ONLY_BY_DEFAULT = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)

# By name, because before Python 3.10 it has no __name__. torch 2.4 and 2.5 take no names.
ANY = ((typing.Any, "typing.Any"),) if WEIGHTS_ONLY_BY_DEFAULT else ()


def patch_safe_globals() -> None:
    """Allow the plain classes that fairseq pickles beside tensors; other classes stay refused.

    Checkpoints are loaded as weights only (see ``patch_weights_only``). fairseq's own also hold an argparse.Namespace
    (named architectures) and numpy's scalars and arrays (``--eval-bleu``), which are checked before they are built, and
    OmegaConf containers are broadcast when several processes resume.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq declares these classes itself; none does yet.
    """
    from fairseq.distributed.utils import _TensorPlaceholder

    torch.serialization.add_safe_globals(
        [
            argparse.Namespace,
            *STAND_INS,
            omegaconf.DictConfig,
            omegaconf.ListConfig,
            omegaconf.AnyNode,
            omegaconf.base.ContainerMetadata,
            omegaconf.base.Metadata,
            _TensorPlaceholder,
            *ANY,
            collections.defaultdict,
            dict,
            list,
            int,
        ]
    )


def patch_foreign_numpy() -> None:
    """Let a program that allows numpy's own functions, such as transformers' ``Trainer``, read its own files with them.

    torch knows each name once: with some functions of numpy's and some of ours, neither's files could be read.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1, because of what ``patch_safe_globals`` does.
    Remove when: numpy builds no types from a pickle that end the process.
    """
    wrap_once(torch, "load", "foreign_numpy", _load_beside_numpy)


def _load_beside_numpy(original, *args, **kwargs):
    allowed = list(torch.serialization.get_safe_globals())
    own = {id(stand_in) for stand_in in STAND_INS}
    names = {full_name(stand_in) for stand_in in STAND_INS}
    others = [entry for entry in allowed if id(entry) not in own]
    if not names & set(map(full_name, others)):
        return original(*args, **kwargs)
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(others)
    try:
        return original(*args, **kwargs)
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(allowed)


def full_name(entry: Any) -> str:
    """The name under which torch finds what it may call, which is given as itself, or with its name."""
    if isinstance(entry, tuple):
        return entry[1]
    return f"{entry.__module__}.{getattr(entry, '__qualname__', entry)}"


def patch_weights_only() -> None:
    """Make ``torch.load`` load weights only by default on torch 2.4 and 2.5 too, where a checkpoint can run any code.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1, which leave it to the default.
    Remove when: torch 2.6 is required.
    """
    if not WEIGHTS_ONLY_BY_DEFAULT:
        wrap_once(torch, "load", "weights_only", load_weights_only)


def load_weights_only(original, *args, weights_only=None, **kwargs):
    """``torch.load`` as from torch 2.6 on."""
    return original(*args, weights_only=True if weights_only is None else weights_only, **kwargs)
