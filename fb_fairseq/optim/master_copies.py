"""The fp32 copies that fairseq keeps of half-precision parameters."""

from typing import Iterable

import torch
from torch import Tensor


def clamp_master_copies(optimizer, parameters: Iterable[Tensor], low: float = 0.0, high: float = 1.0) -> None:
    """Clamp the fp32 copies of these parameters (``--fp16``, with flat or separate copies; else there are none).

    Args:
        optimizer: fairseq's optimizer, wrapped or not.
    """
    wanted = {id(parameter) for parameter in parameters}
    copies = getattr(optimizer, "fp32_params", None)
    if copies is None or not wanted:
        return
    if isinstance(copies, dict):  # one flat copy a device; fairseq fills one device outside of pipelines
        copies = next(iter(copies.values()))
    offset = 0
    for i, parameter in enumerate(optimizer.fp16_params):
        n = parameter.numel()
        if id(parameter) in wanted:
            copy = copies.data[offset : offset + n] if torch.is_tensor(copies) else copies[i].data
            copy.clamp_(low, high)
        offset += n
