"""Starts fairseq's commands in tests 0.3 s sooner: hydra 1.0 merges the same twelve dataclasses for each of them.

The configuration for each combination of choices (``task=…``, ``model=…``) is composed once per process; other values
are then set on a copy.
"""

import contextlib
import copy
import functools
from unittest import mock

import fairseq.dataclass.utils as fairseq_utils
import hydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

COMPOSE = fairseq_utils.compose


@functools.cache
def parsed(override: str):
    """An override as hydra parses it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(override)


@functools.cache
def chosen(config_name: str, strict: bool | None, groups: tuple[str, ...]):
    """The configuration of a combination of choices, such as ``task=translation``."""
    return COMPOSE(config_name, overrides=list(groups), strict=strict)


def compose_quickly(config_name: str, overrides=(), strict: bool | None = None):
    """In place of hydra's ``compose``, which is left to refuse what is wrong."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.global_hydra import GlobalHydra

    try:
        loader = GlobalHydra.instance().config_loader()
        groups, values = loader.split_by_override_type([parsed(override) for override in overrides])
        cfg = copy.deepcopy(chosen(config_name, strict, tuple(override.input_line for override in groups)))
        ConfigLoaderImpl._apply_overrides_to_config(values, cfg)
        return cfg
    except (HydraException, OmegaConfBaseException):
        return COMPOSE(config_name, overrides=list(overrides), strict=strict)


def quick_composition():
    """Context in which fairseq composes its configuration quickly (with hydra 1.0)."""
    if not hydra.__version__.startswith("1.0."):
        return contextlib.nullcontext()
    return mock.patch.object(fairseq_utils, "compose", compose_quickly)
