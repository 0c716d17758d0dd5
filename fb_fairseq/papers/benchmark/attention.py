"""Attention of one step over a full memory: time, and bandwidth of reading keys and values.

Measures our reference operations, torch's scaled_dot_product_attention with the position scores as its mask, and on a
GPU the Triton kernel; all without gradients. Copying the same number of bytes shows the limit, because each key and
value has to be read once.
"""

import argparse
from typing import Callable, Dict, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.ops.attention import Positions, step_attention
from fb_fairseq.ops.fallbacks import attention_kernels
from fb_fairseq.ops.layers import at_least_fp32
from fb_fairseq.papers.benchmark.measure import interleaved_medians, table
from fb_fairseq.papers.benchmark.models import DTYPES
from fb_fairseq.papers.benchmark.options import add_repeats

CALLS = 50  # calls that are timed together, as one is too short
FP32_TOLERANCE = 1e-4  # largest difference, relative to the largest entry
HALF_TOLERANCE = 3e-2


class Inputs(NamedTuple):
    """Query, keys, values and relative positions of a step."""

    q_BHE: Tensor
    keys_BHSE: Tensor
    values_BHSE: Tensor
    positions_SE: Tensor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_repeats(parser)


def run(args: argparse.Namespace) -> dict:
    """Time each implementation.

    Raises:
        RuntimeError: an implementation does not compute what the reference does.
    """
    inputs = random_inputs(args)
    cases = {"plain": lambda: reference(inputs), "scaled_dot_product_attention": lambda: torch_attention(inputs)}
    triton = triton_attention(inputs) if args.device.startswith("cuda") else None
    if triton is not None:
        cases["Triton kernel"] = triton
    check(cases, FP32_TOLERANCE if args.dtype == "fp32" else HALF_TOLERANCE)
    source, target = inputs.keys_BHSE.flatten(), torch.empty_like(inputs.keys_BHSE).flatten()
    cases["a copy"] = lambda: target.copy_(source)  # reads one half of the bytes, and writes as many
    with torch.no_grad():
        loops = [repeated(function) for function in cases.values()]
        medians = interleaved_medians(loops, args.device, args.repeats)
    times = {name: median / CALLS for name, median in zip(cases, medians)}
    read = 2 * inputs.keys_BHSE.numel() * inputs.keys_BHSE.element_size()
    speeds = {name: read / time for name, time in times.items()}
    rows = [[name, times[name] * 1e6, speeds[name] / 1e9, speeds[name] / speeds["a copy"]] for name in cases]
    table(["", "microseconds", "GB/s of keys and values", "relative to a copy"], rows)
    return {
        "microseconds": {name: round(time * 1e6, 2) for name, time in times.items()},
        "gigabytes_per_second": {name: round(speed / 1e9, 3) for name, speed in speeds.items()},
    }


def random_inputs(args: argparse.Namespace) -> Inputs:
    """Random inputs of the sizes, type and device from the command line."""
    B, H, S, E = args.batch_size, args.heads, args.span, args.embed_dim // args.heads
    place = {"device": args.device, "dtype": DTYPES[args.dtype]}
    q_BHE, positions_SE = torch.randn(B, H, E, **place), torch.randn(S, E, **place)
    keys_BHSE, values_BHSE = torch.randn(2, B, H, S, E, **place)
    return Inputs(q_BHE, keys_BHSE, values_BHSE, positions_SE)


def reference(inputs: Inputs) -> Tensor:
    """[B, H, E], computed by the operations that the other implementations are compared with."""
    keys_SBHE, values_SBHE = inputs.keys_BHSE.permute(2, 0, 1, 3), inputs.values_BHSE.permute(2, 0, 1, 3)
    return step_attention(inputs.q_BHE, keys_SBHE, values_SBHE, Positions(inputs.positions_SE))


def torch_attention(inputs: Inputs) -> Tensor:
    """[B, H, E], computed by ``scaled_dot_product_attention``."""
    q_BHE, keys_BHSE, values_BHSE, positions_SE = inputs
    scores_BH1S = (q_BHE @ positions_SE.t())[:, :, None] * q_BHE.shape[-1] ** -0.5
    return F.scaled_dot_product_attention(q_BHE[:, :, None], keys_BHSE, values_BHSE, scores_BH1S)[:, :, 0]


def triton_attention(inputs: Inputs) -> Optional[Callable[[], Tensor]]:
    """A function that runs the Triton kernel and returns [B, H, E]; None if Triton is not installed."""
    q_BHE, keys_BHSE, values_BHSE, positions_SE = inputs
    B, H, S, _ = keys_BHSE.shape
    kernels = attention_kernels("triton", q_BHE.device)
    if kernels is None:
        return None
    slots = kernels.Slots(keys_BHSE.flatten(0, 1), values_BHSE.flatten(0, 1), H, positions_SE)
    p_GS = torch.empty(B * H, S, device=q_BHE.device, dtype=at_least_fp32(q_BHE[:0]).dtype)
    out_BHE = torch.empty_like(q_BHE)

    def attend():
        kernels.attend(q_BHE.flatten(0, 1), slots, None, p_GS, out_BHE.flatten(0, 1))
        return out_BHE

    return attend


def check(cases: Dict[str, Callable[[], Tensor]], tolerance: float) -> None:
    """Compare the results of all functions with that of the first one.

    Raises:
        RuntimeError: they differ by more than ``tolerance`` times the largest entry.
    """
    expected = None
    for name, function in cases.items():
        result = function().float()
        expected = result if expected is None else expected
        if not (result - expected).abs().max() < tolerance * expected.abs().max():
            raise RuntimeError(f"{name}: the result differs from the reference")


def repeated(function: Callable) -> Callable:
    """A function that makes ``CALLS`` calls."""

    def loop():
        for _ in range(CALLS):
            function()

    return loop
