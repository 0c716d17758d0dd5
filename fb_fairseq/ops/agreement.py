"""Whether two ways to compute the same agree, on real input: a kernel that is wrong somewhere is not used there."""

import math
from typing import Any, Callable, Optional

import torch

from fb_fairseq.ops.cuda_graph import tensors
from fb_fairseq.ops.fallbacks import first_line
from fb_fairseq.ops.layers import at_least_fp32

# How far results may be from each other, relative to norms: what is wrong is wrong by more. (TF32 counts as half.)
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-2, torch.float16: 0.1, torch.bfloat16: 0.1}
# Gradients that should be zero, such as that of a key's bias, are noise. A tensor's error counts relative to this share
# of the largest norm, if its own norm is less.
LEAST_NORM = 0.05


def disagreement(run: Callable[[], Any], plain: Callable[[], Any], dtype: torch.dtype) -> Optional[str]:
    """Why the results of ``run`` are not those of ``plain``; None: they are, or the latter are not finite.

    Args:
        run, plain: return lists of groups of tensors.
        dtype: of the matrix products.
    """
    expected = [[x.clone() for x in tensors(group)] for group in plain()]
    try:
        found = [tensors(group) for group in run()]
    except Exception as error:  # whatever it is, the other one runs
        return f"failed: {first_line(error)}"
    for group, reference in zip(found, expected):
        norms = torch.stack([at_least_fp32(x).norm().float() for x in reference])
        errors = torch.stack([(at_least_fp32(a) - at_least_fp32(b)).norm().float() for a, b in zip(group, reference)])
        error = (errors / norms.clamp(min=LEAST_NORM * norms.max()).clamp(min=1e-30)).max().item()
        if bool(norms.isfinite().all()) and not error <= TOLERANCES[dtype]:
            return f"its results differ by {error:.1g}" if math.isfinite(error) else "its results are not finite"
    return None
