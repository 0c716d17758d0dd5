"""``--model-overrides``: names that no option has."""

from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fb_fairseq.errors import UserError
from fb_fairseq.literals import parse_literal
from fb_fairseq.patches.wrapping import is_ours, wrap_once


def patch_model_overrides() -> None:
    """Refuse names in --model-overrides that no option has.

    fairseq ignores them: a figure would be that of another setting. For models of this package.
    """
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "overwrite_args_by_name", "model_overrides", _override)


def _override(original, cfg, overrides):
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
    from fairseq.registry import REGISTRIES

    original(cfg, overrides)
    model = ARCH_MODEL_REGISTRY.get(getattr(cfg.model, "arch", None)) or MODEL_REGISTRY.get(cfg.model._name)
    if not is_ours(model):
        return
    # from_pretrained overrides also the names of files that it finds beside a checkpoint.
    parts = [kind for part in ("bpe", "tokenizer") for kind in REGISTRIES[part]["dataclass_registry"].values()]
    known = {field.name for kind in parts for field in fields(kind)} | _names(OmegaConf.to_container(cfg))
    if not isinstance(cfg.model, DictConfig):  # a Namespace of what was given
        parser = ArgumentParser(add_help=False)
        model.add_args(parser)
        known |= {action.dest for action in parser._actions}
    # fairseq-validate overrides all that its command line has.
    for name in parse_literal(overrides["model_overrides"]) if "model_overrides" in overrides else overrides:
        if name not in known:
            raise UserError(f"--model-overrides: neither the model nor the task has an option {name!r}; leave it out")


def _names(values: Mapping[str, Any]) -> set[str]:
    """The names in a configuration, and in its groups."""
    return set(values).union(*(_names(value) for value in values.values() if isinstance(value, Mapping)))
