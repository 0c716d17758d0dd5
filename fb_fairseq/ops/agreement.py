"""A check of kernels on real input: wrong ones are not used."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops.log import first_line
from fb_fairseq.ops.products import at_least_fp32
from fb_fairseq.ops.tensor_trees import tensors

# How far results may be from those of torch's operations, relative to norms.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
TF32_TOLERANCE = 1e-2
# In half precision torch's operations are rounded, too. Where results in fp32 are known, kernels may be so many times
# as far from them as torch's operations are.
WORSE = 2
# Gradients that should be zero, such as that of a key's bias, are noise. A tensor's error counts relative to this share
# of the largest norm, if its own norm is less.
LEAST_NORM = 0.05


class Undecided(Exception):
    """Nothing can be said: the results to compare with are not finite."""


def disagreement(
    run: Callable[[], Any], reference: Callable[[], Any], dtype: torch.dtype, exact: Callable[[], Any] | None = None
) -> str | None:
    """The reason why the results of ``run`` are not those of ``reference``; None if they are.

    Args:
        run, reference: return lists of groups of tensors.
        dtype: of the matrix products.
        exact: the same in fp32, for types of half precision; None, or if memory is short for it: the two are compared
            directly.

    Raises:
        Undecided: the results of ``reference`` are not finite.
        torch.cuda.OutOfMemoryError: memory is short for ``run`` or ``reference``.
    """
    try:
        found = cloned_groups(run())
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # whatever it is, torch's operations run
        return f"failed: {first_line(error)}"
    expected = cloned_groups(reference())
    if pytree.tree_map(Tensor.size, found) != pytree.tree_map(Tensor.size, expected):
        return "its results have other shapes"
    if not all(bool(x.isfinite().all()) for group in expected for x in group):
        raise Undecided
    wide = None
    if exact is not None:
        try:
            wide = cloned_groups(exact())
        except torch.cuda.OutOfMemoryError:  # results in fp32 take twice the memory
            pass
    if wide is None:
        tolerance = TOLERANCES[dtype]
        if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
            tolerance = TF32_TOLERANCE
        return too_far(distances(found, expected), tolerance)
    tolerance = max(TOLERANCES[torch.float32], WORSE * max(distances(expected, wide)))
    return too_far(distances(found, wide), tolerance)


def cloned_groups(groups: Any) -> list[list[Tensor]]:
    """The tensors of each group, safe from later runs."""
    return [[x.clone() for x in tensors(group)] for group in groups]


def distances(found: list[list[Tensor]], expected: list[list[Tensor]]) -> list[float]:
    """The distance of each group from the expected one: the largest of its tensors' errors, relative to norms."""
    errors = []
    for ours, theirs in zip(found, expected):
        norms = torch.stack([at_least_fp32(x).norm().float() for x in theirs])
        off = torch.stack([(at_least_fp32(a) - at_least_fp32(b)).norm().float() for a, b in zip(ours, theirs)])
        errors.append((off / norms.clamp(min=LEAST_NORM * norms.max()).clamp(min=1e-30)).max().item())
    return errors


def too_far(errors: list[float], tolerance: float) -> str | None:
    """The problem that errors are; None: none."""
    for error in errors:
        if not error <= tolerance:
            return f"its results differ by {error:.1g}" if math.isfinite(error) else "its results are not finite"
    return None


def in_fp32(tree: Any) -> Any:
    """Nested tuples, lists and dictionaries with their floating-point tensors in fp32."""
    return pytree.tree_map_only(Tensor, lambda x: x.float() if x.is_floating_point() else x, tree)
