"""Wrap a function of fairseq once, even if other code has wrapped it before or wraps it afterwards; find those of
``fairseq-train``, and our models.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import fb_fairseq

# Set on each wrapper to its patch's name. ``__wrapped__`` alone would not tell our wrappers from others'.
MARKER = "_fb_fairseq_patch"
TRAINING_MODULES = ("fairseq_cli.train", "__main__")  # the second under python -m fairseq_cli.train


def wrap_once(owner: Any, name: str, patch: str, replacement: Callable) -> None:
    """Make ``owner.name(...)`` call ``replacement(original, ...)``, unless this patch is already in place.

    Args:
        owner: module or class that defines the function, method or static method.
        name: its attribute name.
        patch: name of the patch, unique among all patches.
        replacement: called with the original function, followed by the call's own arguments.
    """
    original = getattr(owner, name)
    if has_patch(original, patch):
        return

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        return replacement(original, *args, **kwargs)

    setattr(wrapper, MARKER, patch)  # after functools.wraps, which copies the original's own marker
    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(wrapper) if is_static else wrapper)


def has_patch(function: Callable, patch: str) -> bool:
    """Whether ``function``, or a function that it wraps (along ``__wrapped__``), is the wrapper of this patch.

    A decorator on top that sets no ``__wrapped__`` hides it.
    """

    def is_marked(candidate) -> bool:
        return getattr(candidate, MARKER, None) == patch

    return is_marked(inspect.unwrap(function, stop=is_marked))


def training_modules() -> list[Any]:
    """The modules of ``fairseq-train`` that are imported, the one that runs last."""
    modules = (sys.modules.get(name) for name in TRAINING_MODULES)
    return [module for module in modules if hasattr(module, "validate_and_save") and hasattr(module, "train")]


def is_ours(model: type | None) -> bool:
    """Whether a class of models is one of this package, or made from one."""
    return model is not None and any(kind.__module__.startswith(f"{fb_fairseq.__name__}.") for kind in model.__mro__)
