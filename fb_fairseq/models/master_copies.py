"""The fp32 master copies that fairseq's optimizer keeps of fp16 and bf16 parameters."""

from collections.abc import Iterable

import torch
from torch import Tensor


def clamp_master_copies(optimizer, parameters: Iterable[Tensor]) -> None:
    """Clamp the fp32 copies of some parameters to [0, 1].

    Necessary after the parameters themselves were clamped: the next update starts from the copies.

    Args:
        optimizer: fairseq's optimizer. Nothing is done if it keeps no fp32 copies, as in fp32 training.
        parameters: half-precision parameters of the model.
    """
    clamped = {id(parameter) for parameter in parameters}
    copies = getattr(optimizer, "fp32_params", None)  # only fairseq's FP16Optimizer has it
    if copies is None or not clamped:
        return
    if isinstance(copies, dict):  # a flat copy per device, but there is one device only without pipeline parallelism
        copies = next(iter(copies.values()))
    offset = 0
    for i, parameter in enumerate(optimizer.fp16_params):
        n = parameter.numel()
        if id(parameter) in clamped:
            copy = copies.data[offset : offset + n] if torch.is_tensor(copies) else copies[i].data
            copy.clamp_(0, 1)
        offset += n
