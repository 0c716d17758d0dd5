"""Types of numbers in products and sums."""

import torch
from torch import Tensor


def product_type(x: Tensor) -> torch.dtype:
    """The type in which matrix products of ``x`` are computed: autocast's, or its own."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def at_least_fp32(x: Tensor) -> Tensor:
    """``x``, converted to fp32 if it is fp16 or bf16: softmax and sums over steps are never in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def add_product(total: Tensor, a: Tensor, b: Tensor, scale: float = 1.0) -> None:
    """Add ``scale a b``, of matrices or batches of them, to a total that may be of a wider type."""
    if total.dtype != a.dtype:
        total.add_(a @ b, alpha=scale)
    elif total.dim() == 2:
        total.addmm_(a, b, alpha=scale)
    else:
        total.baddbmm_(a, b, alpha=scale)
