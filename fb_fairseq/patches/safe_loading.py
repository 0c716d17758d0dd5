"""Loading of checkpoints as data.

A checkpoint may hold plain values, and the few classes that fairseq saves. Its options run no code, and name no
addresses that are fetched.
"""

import argparse
import collections
import sys
import typing
from collections.abc import Mapping
from types import SimpleNamespace

import omegaconf
import torch

from fb_fairseq.errors import UserError, flag
from fb_fairseq.literals import parse_literal
from fb_fairseq.patches.numpy_pickles import STAND_INS
from fb_fairseq.patches.wrapping import wrap_once

PACKAGES = ("fairseq", "fairseq_cli")


def patch_literal_values() -> None:
    """Let fairseq's ``eval`` read plain values only.

    Options such as ``adaptive_softmax_cutoff`` also come out of checkpoints, so that a checkpoint could run code even
    if its tensors are loaded as weights only. In each of fairseq's modules the name ``eval`` is bound to
    ``parse_literal``, which Python finds before its own.
    """
    import fairseq.models  # noqa: F401  all modules that a checkpoint's configuration can reach
    import fairseq.tasks  # noqa: F401

    for name, module in list(sys.modules.items()):
        name = getattr(getattr(module, "__spec__", None), "name", name) if name == "__main__" else name
        if name.partition(".")[0] in PACKAGES and not hasattr(module, "eval"):
            module.eval = parse_literal
            if name.startswith("fairseq_cli.") and hasattr(module, "ast"):  # ast.literal_eval: errors in one line
                module.ast = SimpleNamespace(literal_eval=parse_literal)


def patch_safe_globals() -> None:
    """Allow the plain classes that fairseq pickles beside tensors; other classes stay refused.

    torch loads checkpoints as weights only. fairseq's own also hold an argparse.Namespace (named architectures), and
    numpy's scalars and arrays (``--eval-bleu``), which are checked before they are built; OmegaConf containers are
    broadcast when several processes resume.
    """
    from fairseq.distributed.utils import _TensorPlaceholder

    omegaconfs = omegaconf.DictConfig, omegaconf.ListConfig, omegaconf.AnyNode
    metadata = omegaconf.base.ContainerMetadata, omegaconf.base.Metadata
    plain = argparse.Namespace, collections.defaultdict, dict, list, int, typing.Any
    torch.serialization.add_safe_globals([*plain, *STAND_INS, *omegaconfs, *metadata, _TensorPlaceholder])


def patch_hub_addresses() -> None:
    """Fetch nothing from an address that a checkpoint names.

    ``from_pretrained`` builds the BPE and the tokenizer that a checkpoint's configuration describes, within the
    constructor of fairseq's hub interface, and downloads their files. Addresses that are fairseq's own defaults, or
    given to ``from_pretrained``, are fetched as before.
    """
    from fairseq import hub_utils

    wrap_once(hub_utils, "from_pretrained", "hub_addresses", _load_from_hub)


def _load_from_hub(original, *args, **kwargs):
    from fairseq.registry import REGISTRIES

    loaded = original(*args, **kwargs)
    for part in ("bpe", "tokenizer"):
        options = loaded["args"][part] if part in loaded["args"] else None
        options = dict(options) if isinstance(options, Mapping) else {}
        for name, value in options.items():
            known = getattr(REGISTRIES[part]["dataclass_registry"].get(options.get("_name")), name, None)
            if "://" in str(value) and value not in (kwargs.get(name), known):
                raise UserError(
                    f"{flag(name)} {value}: an address that the checkpoint names, and that is not fetched; give a file "
                    f"or this address to from_pretrained ({name}=…)"
                )
    return loaded
