"""Linear maps and norms of layers, as the step loops need them, also where users have put something in their place.

The loops read matrices instead of calling modules. The reference loop alone calls what is not just an ``nn.Linear``
or a layer norm with torch's epsilon and a bias: adapters, quantised layers, modules with hooks, other norms.
"""

import torch.nn as nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from fb_fairseq.ops.layers import LAYER_NORM_EPS, Affine, CalledModule, Projection
from fb_fairseq.ops.log import log_once

HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"


def affine(module: nn.Module) -> Affine | CalledModule:
    """The weight and bias of an ``nn.Linear``, or what is to be called in its place."""
    return Affine(module.weight, module.bias) if is_bare_linear(module) else CalledModule(module)


def norm(module: nn.Module) -> Affine | CalledModule:
    """The weight and bias of a layer norm, or what is to be called in its place."""
    is_apex = type(module).__name__ == "FusedLayerNorm"
    is_layer_norm = (is_apex or type(module).forward is nn.LayerNorm.forward) and runs_forward_only(module)
    if is_layer_norm and module.bias is not None and module.eps == LAYER_NORM_EPS:
        return Affine(module.weight, module.bias)
    return CalledModule(module)


def projection(before: Affine | CalledModule | None, key: nn.Module, value: nn.Module) -> Projection:
    """Key and value projections, behind a norm. They are called if only one has a bias: loops multiply by both at
    once.
    """
    both = affine(key), affine(value)
    key_bias, value_bias = (getattr(part, "bias", None) for part in both)
    if (key_bias is None) != (value_bias is None):
        both = CalledModule(key), CalledModule(value)
    return Projection(before, *both)


def is_bare_linear(module: nn.Module) -> bool:
    """Whether a module does nothing but multiply by its ``weight`` and add its ``bias``."""
    return (
        type(module).forward is nn.Linear.forward  # also where ``weight`` is parametrised
        and runs_forward_only(module)
        and not is_traceable_wrapper_subclass(module.weight)  # torchao's
    )


def runs_forward_only(module: nn.Module) -> bool:
    """Whether a module, if it is called, runs the ``forward`` of its class and nothing else."""
    replaced = "forward" in module.__dict__ and not hasattr(module, "_hf_hook")  # accelerate's only move tensors
    return not replaced and not has_hooks(module)


def has_hooks(module: nn.Module) -> bool:
    """Whether a module has hooks, which run only if it is called."""
    return any(getattr(module, kind, None) for kind in HOOKS)


def warn_of_hooks(*modules: nn.Module | None) -> None:
    """Log once that hooks of modules that are never called do not run. None: there is no such module."""
    for module in modules:
        if module is not None and has_hooks(module):
            log_once(
                f"{type(module).__name__}: its hooks do not run, because the step loops do not call it; see"
                " output_hidden_states, or put hooks on the linear maps"
            )
