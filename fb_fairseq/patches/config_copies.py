"""Start fairseq's commands a second sooner."""

import omegaconf
from omegaconf import DictConfig, ListConfig
from omegaconf.nodes import ValueNode

from fb_fairseq.patches.wrapping import wrap_once


def patch_config_copies() -> None:
    """Do not copy the whole configuration with each of its parts (OmegaConf 2.0 does, 300 times).

    OmegaConf 2.0 copies a node's parent along with it, and so all of the configuration, for each of the 300 options
    that fairseq sets. OmegaConf gives the copy its new parent afterwards.

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
