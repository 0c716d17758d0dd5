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


@functools.cache
def parsed(override: str):
    """An override as hydra parses it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(override)


class QuickComposition:
    """In place of hydra's ``compose``, from which it takes whatever fails here."""

    def __init__(self, compose):
        self.compose, self.chosen = compose, {}

    def __call__(self, config_name, overrides=(), strict=None):
        try:
            return self._quick(config_name, tuple(overrides), strict)
        except Exception:
            return self.compose(config_name, overrides=list(overrides), strict=strict)

    def _quick(self, config_name, overrides, strict):
        from hydra._internal.config_loader_impl import ConfigLoaderImpl
        from hydra.core.global_hydra import GlobalHydra

        loader = GlobalHydra.instance().config_loader()
        groups, values = loader.split_by_override_type([parsed(override) for override in overrides])
        key = config_name, strict, tuple(override.input_line for override in groups)
        if key not in self.chosen:
            self.chosen[key] = self.compose(config_name, overrides=list(key[-1]), strict=strict)
        cfg = copy.deepcopy(self.chosen[key])
        ConfigLoaderImpl._apply_overrides_to_config(values, cfg)
        return cfg


def quick_composition():
    """Context in which fairseq composes its configuration quickly (with hydra 1.0)."""
    if not hydra.__version__.startswith("1.0.") or isinstance(fairseq_utils.compose, QuickComposition):
        return contextlib.nullcontext()
    return mock.patch.object(fairseq_utils, "compose", QUICK)


QUICK = QuickComposition(fairseq_utils.compose)
