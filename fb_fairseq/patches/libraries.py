"""Libraries under fairseq: their warnings, OmegaConf, numpy 2."""

import logging
import warnings
from types import SimpleNamespace

import numpy as np
import omegaconf
from omegaconf import DictConfig, ListConfig
from omegaconf.nodes import ValueNode

from fb_fairseq.patches.wrapping import wrap_once

MESSAGES = (
    r".*pin_memory.*",  # data loaders on a machine without a GPU
    r".*torch\.cuda\.amp\..*is deprecated.*",
    r".*mismatched key_padding_mask.*",  # boolean padding mask with a float attention mask
    r".*torch\.jit\.script.* is deprecated.*",
    r"(?s).*is validated against ConfigStore schema.*",  # hydra, for each of fairseq's configurations
    r"hydra\.experimental\..* is no longer experimental",  # and from here on, hydra 1.3 with fairseq-fixed
    r"\s*The version_base parameter is not specified",
    r".*Usage of deprecated keyword in package header",
    r"\s*The strict flag in the compose API is deprecated",
    r".*nested tensors is in prototype stage.*",
)


def patch_warning_filters() -> None:
    """Ignore warnings about deprecated calls in fairseq, and a log line that asks for tensorboardX."""
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    for message in MESSAGES:
        warnings.filterwarnings("ignore", message=message)


def patch_config_copies() -> None:
    """Do not copy a node's parent along with it: OmegaConf 2.0 does, and so copies all of the configuration for each of
    the 300 options that fairseq sets. It gives the copy its new parent afterwards.

    Affects: fairseq 0.12.2, which needs OmegaConf 2.0. (fairseq-fixed has a later one, which copies no parents.)
    Remove when: fairseq 0.12.2 is no longer supported.
    """
    if not omegaconf.__version__.startswith("2.0."):
        return
    for owner, method in ((ValueNode, "_deepcopy_impl"), (DictConfig, "__deepcopy__"), (ListConfig, "__deepcopy__")):
        wrap_once(owner, method, "config_copies", _copy_without_parent)


def _copy_without_parent(original, self, *args):
    parent = self.__dict__["_parent"]
    if parent is not None and args:
        memo = args[-1]  # by identity: what counts as copied already
        memo.setdefault(id(parent), parent)
    return original(self, *args)


def patch_numpy_long() -> None:
    """Define ``np.compat.long``, which fairseq uses for ``--sample-break-mode eos`` and ``--num-batch-buckets``, and
    numpy 2 does not have.
    """
    if not hasattr(np, "compat"):
        np.compat = SimpleNamespace()
    if not hasattr(np.compat, "long"):
        np.compat.long = int
