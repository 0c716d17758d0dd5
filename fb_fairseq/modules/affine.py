"""Linear maps and norms of layers, as the step loops need them, also where users have put something in their place.

The loops read matrices instead of calling modules. So a module that is not just an ``nn.Linear`` (an adapter, a
quantised layer, one with hooks) is asked for its matrix, by what it makes of the unit vectors. Where it has none,
because it rounds its input or drops some of it, or somebody watches its calls, the reference loop calls it."""

from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.nn as nn
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from fb_fairseq.errors import UserError
from fb_fairseq.ops.cuda_graphs import log_once
from fb_fairseq.ops.layers import LAYER_NORM_EPS, Affine, CalledModule, has_modules, is_module

Weights = TypeVar("Weights")

# How far a map may be from its matrix, relative to its largest result.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}
HALF_TOLERANCE = 2e-2
CHECKED = 2  # vectors for which a map is compared with its matrix

HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"

# Why a module is no affine map, or an empty text, by whether it is in training mode.
_problems: "WeakKeyDictionary[nn.Module, dict[bool, str]]" = WeakKeyDictionary()


class NotAffineError(Exception):
    """Raised for a module that no matrix can replace; the message says why."""


def affine(module: nn.Module) -> Affine | CalledModule:
    """The weight and bias of an ``nn.Linear``, or what is to be called in its place."""
    return Affine(module.weight, module.bias) if is_bare_linear(module) else CalledModule(module)


def norm(module: nn.Module) -> Affine | CalledModule:
    """The weight and bias of a layer norm, or what is to be called in its place."""
    if not type(module).__name__.endswith("LayerNorm") or has_hooks(module):  # (apex has one of its own)
        return CalledModule(module)
    if module.eps != LAYER_NORM_EPS:
        raise UserError(f"layer norms: one has epsilon {module.eps}; only {LAYER_NORM_EPS} is supported")
    return Affine(module.weight, module.bias)


def is_bare_linear(module: nn.Module) -> bool:
    """Whether a module does nothing but multiply by its ``weight`` and add its ``bias``."""
    replaced = "forward" in module.__dict__ and not hasattr(module, "_hf_hook")  # accelerate's only move tensors
    return (
        isinstance(module, nn.Linear)
        and type(module).forward is nn.Linear.forward  # also where ``weight`` is parametrised
        and not replaced
        and not has_hooks(module)
        and not is_traceable_wrapper_subclass(module.weight)  # torchao's
    )


def has_hooks(module: nn.Module) -> bool:
    """Whether a module has hooks, which run only if it is called."""
    return any(getattr(module, kind, None) for kind in HOOKS)


def warn_of_hooks(*modules: nn.Module) -> None:
    """Log once that hooks of modules that are never called do not run."""
    for module in modules:
        if has_hooks(module):
            log_once(
                f"{type(module).__name__}: its hooks do not run, because the step loops do not call it; see"
                " output_hidden_states, or put hooks on the linear maps"
            )


def with_matrices(weights: Weights) -> Weights | None:
    """Weights with matrices for modules, differentiable; None where a module has no matrix, which is logged once."""
    if not has_modules(weights):
        return weights
    try:
        return pytree.tree_map(lambda x: matrix(x.module) if is_module(x) else x, weights, is_leaf=is_module)
    except NotAffineError as problem:
        log_once(f"step loops: {problem}; the reference loop runs, which is slow")
        return None


def matrix(module: nn.Module) -> Affine:
    """The matrix and bias of a module; whether it has one is checked at its first use in training and in evaluation.

    Raises:
        NotAffineError: it is no affine map."""
    known = _problems.setdefault(module, {})
    if known.get(module.training):
        raise NotAffineError(known[module.training])
    try:
        found = probed(module, check=module.training not in known)
    except NotAffineError as problem:
        known[module.training] = str(problem)
        raise
    known[module.training] = ""
    return found


def probed(module: nn.Module, check: bool) -> Affine:
    """The matrix and bias of an affine map, from its results for the unit vectors and zero.

    Args:
        check: compare its results for other vectors with these.

    Raises:
        NotAffineError: it is no affine map, or has no ``in_features``."""
    name = type(module).__name__
    parts = list(module.modules())
    if any(has_hooks(part) for part in parts):
        raise NotAffineError(f"a {name} has hooks")
    if any(isinstance(part, _DropoutNd) and part.p > 0 and part.training for part in parts):
        raise NotAffineError(f"a {name} has dropout of its own")
    width = next((part.in_features for part in parts if hasattr(part, "in_features")), None)
    if width is None:
        raise NotAffineError(f"a {name} has no in_features, as linear maps have")
    like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    units = torch.eye(width, dtype=like.dtype, device=like.device)
    rows = torch.cat([units.new_zeros(1, width), units, vectors_to_compare(units)])
    with torch.autocast(like.device.type, enabled=False):
        results = module(rows)
    bias, weight = results[0], (results[1 : 1 + width] - results[0]).t()
    if check:
        expected = rows[-CHECKED:].to(weight.dtype) @ weight.t() + bias
        error = (results[-CHECKED:] - expected).abs().max()
        if not error <= TOLERANCES.get(results.dtype, HALF_TOLERANCE) * results.abs().max():
            if bool(results.isfinite().all()):
                raise NotAffineError(f"a {name} is no affine map of its input")
    return Affine(weight, bias)


def vectors_to_compare(units: Tensor) -> Tensor:
    """Vectors [CHECKED, width] of any signs and sizes; always the same."""
    places = torch.arange(CHECKED * len(units), device=units.device, dtype=torch.float32)
    return (3 * torch.sin(places * places)).view(CHECKED, -1).to(units.dtype)
