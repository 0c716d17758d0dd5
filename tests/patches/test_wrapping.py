"""Patches are applied once, whatever else wraps the same functions, before or afterwards."""

import functools
import inspect
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fb_fairseq import patches
from fb_fairseq.patches.wrapping import MARKER, has_patch, wrap_once
from tests.conftest import REPOSITORY


def add_one(original, x):
    return original(x) + 1


def wrapped_by_others(function):
    """The function in a wrapper of somebody else."""

    @functools.wraps(function)
    def others(*args, **kwargs):
        return function(*args, **kwargs)

    return others


def test_wraps_once():
    owner = SimpleNamespace(f=lambda x: 2 * x)
    for _ in range(2):
        for patch in ("add_one", "add_one_again"):
            wrap_once(owner, "f", patch, add_one)
    found = [has_patch(owner.f, patch) for patch in ("add_one", "add_one_again", "another")]
    assert owner.f(3) == 8 and found == [True, True, False]


def test_others_wrappers_below_and_on_top():
    owner = SimpleNamespace(f=wrapped_by_others(lambda x: 2 * x))
    wrap_once(owner, "f", "add_one", add_one)
    owner.f = wrapped_by_others(owner.f)
    delattr(owner.f, MARKER)  # functools.wraps has copied it; other decorators set only __wrapped__
    wrap_once(owner, "f", "add_one", add_one)
    assert owner.f(3) == 7


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


# Wraps each function that is patched, imports the package, applies the patches again, wraps again and applies again.
# Argument: the functions, each with its owner, its name, and its patches in their order.
PROGRAM = """
import functools, inspect, json, pkgutil, sys
from types import SimpleNamespace
from fairseq import checkpoint_utils

targets = [(pkgutil.resolve_name(owner), name, patches) for owner, name, patches in json.loads(sys.argv[1])]

def wrap_all():
    for owner, name, _ in targets:
        function = getattr(owner, name)
        def others(*args, _function=function, **kwargs):
            return _function(*args, **kwargs)
        others = functools.wraps(function)(others)
        static = isinstance(inspect.getattr_static(owner, name), staticmethod)
        setattr(owner, name, staticmethod(others) if static else others)

def installed(function):
    # The patches along the chain of wrappers, innermost first. functools.wraps copies markers to the wrappers above.
    found = []
    while function is not None:
        code = getattr(function, "__code__", None)  # a class has none
        if code is not None and code.co_name != "others" and hasattr(function, "_fb_fairseq_patch"):
            found.append(function._fb_fairseq_patch)
        function = getattr(function, "__wrapped__", None)
    return found[::-1]

def check():
    for owner, name, expected in targets:
        assert installed(getattr(owner, name)) == expected, (name, installed(getattr(owner, name)))

wrap_all()
import fb_fairseq.patches
check()
fb_fairseq.patches.apply_patches()
check()
wrap_all()
fb_fairseq.patches.apply_patches()
check()

# And the hook works through all wrappers: the streams' memory is saved.
saved = []

class Iterator:
    run = None

    def save_memory(self, folder):
        saved.append(folder)

iterator = Iterator()
trainer = SimpleNamespace(
    data_parallel_rank=1, data_parallel_world_size=1, consolidate_optimizer=lambda: None,
    should_save_checkpoint_on_current_rank=False, always_call_state_dict_during_save_checkpoint=False,
)
cfg = SimpleNamespace(save_dir="folder", no_save=False, maximize_best_checkpoint_metric=False)
checkpoint_utils.save_checkpoint(cfg, trainer, iterator, None)
print(saved)
"""


@pytest.fixture
def targets(monkeypatch):
    """What the patches wrap: ``[owner, name, patches]`` each."""
    found = {}

    def record(owner, name, patch, replacement):
        where = owner.__name__ if inspect.ismodule(owner) else f"{owner.__module__}:{owner.__qualname__}"
        found.setdefault((where, name), []).append(patch)

    for module in vars(patches).values():
        if hasattr(module, "wrap_once"):
            monkeypatch.setattr(module, "wrap_once", record)
    patches.apply_patches()
    return [[*target, names] for target, names in found.items()]


@pytest.mark.not_fast
def test_patches_are_installed_over_and_under_others_wrappers(targets):
    """Whatever wrapped fairseq's functions first: each patch is installed, once, and the streams' memory is saved."""
    assert len(targets) > 25
    command = [sys.executable, "-c", PROGRAM, json.dumps(targets)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "['folder']", done.stderr
