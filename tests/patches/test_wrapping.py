"""Patches are applied once, whatever else wraps the same functions, before or afterwards; and only to fairseq's."""

import functools
import inspect
import sys
from types import ModuleType, SimpleNamespace

import pytest

from fb_fairseq import patches
from fb_fairseq.patches.wrapping import MARKER, has_patch, training_modules, wrap_once


def add_one(original, x):
    return original(x) + 1


def wrapped_by_others(function):
    """The function in a wrapper of somebody else, which has only ``__wrapped__``."""

    @functools.wraps(function)
    def others(*args, **kwargs):
        return function(*args, **kwargs)

    vars(others).pop(MARKER, None)  # functools.wraps has copied it
    return others


def test_wraps_once():
    owner = SimpleNamespace(f=lambda x: 2 * x)
    for _ in range(2):
        for patch in ("add_one", "add_one_again"):
            wrap_once(owner, "f", patch, add_one)
    found = [has_patch(owner.f, patch) for patch in ("add_one", "add_one_again", "another")]
    assert owner.f(3) == 8 and found == [True, True, False]


def test_static_methods_and_methods():
    class Owner:
        @staticmethod
        def double(x):
            return 2 * x

        def method(self, x):
            return 2 * x

    for _ in range(2):
        wrap_once(Owner, "double", "static", add_one)
        wrap_once(Owner, "method", "method", lambda original, self, x: original(self, x) + 1)
    assert Owner.double(3) == Owner().double(3) == Owner().method(3) == 7


def test_a_replaced_function_is_patched_again():
    owner = SimpleNamespace(f=lambda x: 2 * x)
    wrap_once(owner, "f", "add_one", add_one)
    owner.f = lambda x: 3 * x
    wrap_once(owner, "f", "add_one", add_one)
    assert owner.f(3) == 10


def patched_functions():
    """What the patches wrap: by owner and name, the patches in their order."""
    found = {}
    with pytest.MonkeyPatch.context() as recording:
        for module in vars(patches).values():
            if hasattr(module, "wrap_once"):
                record = lambda owner, name, patch, replacement: found.setdefault((owner, name), []).append(patch)
                recording.setattr(module, "wrap_once", record)
        patches.apply_patches()
    return found


def unpatched(function):
    """A function of fairseq as it was before the patches."""
    while hasattr(function, MARKER):
        function = function.__wrapped__
    return function


def installed(function):
    """The patches along the chain of wrappers, innermost first."""
    found = []
    while function is not None:
        if hasattr(function, MARKER):
            found.insert(0, getattr(function, MARKER))
        function = getattr(function, "__wrapped__", None)
    return found


def test_patches_are_installed_once_over_and_under_others_wrappers(monkeypatch):
    expected = patched_functions()

    def wrap(owner, name, function):
        others = wrapped_by_others(function)
        is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
        monkeypatch.setattr(owner, name, staticmethod(others) if is_static else others)

    for owner, name in expected:
        wrap(owner, name, unpatched(getattr(owner, name)))
    for _ in range(2):
        patches.apply_patches()
        found = {(owner, name): installed(getattr(owner, name)) for owner, name in expected}
        assert len(found) > 25 and found == expected
        for owner, name in expected:
            wrap(owner, name, getattr(owner, name))


def test_a_program_with_a_function_train_is_not_fairseqs(monkeypatch):
    program = ModuleType("__main__")
    program.train = print
    before = training_modules()
    monkeypatch.setitem(sys.modules, "__main__", program)
    assert program not in training_modules()
    program.validate_and_save = print
    assert training_modules() == [*before, program]
