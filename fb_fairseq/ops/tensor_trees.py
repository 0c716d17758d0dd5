"""Trees of tensors, as ``torch.utils._pytree`` has them."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def tensors(tree) -> list[Tensor]:
    """The tensors of a pytree, in order."""
    return [x for x in pytree.tree_leaves(tree) if torch.is_tensor(x)]


def copy_all(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Copy tensors into others of the same shapes, with one launch for all of a type. ``pairs``: (to, from)."""
    by_type: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
    for to, given in pairs:
        if given.is_contiguous() and given.dtype == to.dtype:
            by_type.setdefault(to.dtype, []).append((to, given))
        else:  # (one such tensor would make torch copy the others one by one, too)
            to.copy_(given)
    for same in by_type.values():
        torch._foreach_copy_(*map(list, zip(*same)))


def cloned(tree):
    """A graph's result, safe from its next replay: all tensors are cloned. (Autograd may keep a gradient as it is.)"""
    clones = pytree.tree_map_only(Tensor, torch.empty_like, tree)
    copy_all(zip(tensors(clones), tensors(tree)))
    return clones
