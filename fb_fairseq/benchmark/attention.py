"""One step's attention over a full memory: time, and how fast keys and values are read.

The plain twin, torch's ``scaled_dot_product_attention`` with the position scores as its mask, and on a GPU the Triton
kernel; without gradients. Beside them a copy that moves as many bytes: each key and value has to be read once.
"""

import torch
import torch.nn.functional as F

from fb_fairseq.benchmark.measure import DTYPES, alternating_medians, table
from fb_fairseq.ops.attention import Positions, step_attention
from fb_fairseq.ops.fallbacks import attention_kernels
from fb_fairseq.ops.layers import at_least_fp32

CALLS = 50  # one after the other, timed together


def add_arguments(parser) -> None:
    parser.add_argument("--repeats", type=int, default=5, help="the median is of so many runs")


def run(args) -> dict:
    B, H, S, E = args.batch_size, args.heads, args.span, args.embed_dim // args.heads
    place = {"device": args.device, "dtype": DTYPES[args.dtype]}
    q_BHE, positions_SE = torch.randn(B, H, E, **place), torch.randn(S, E, **place)
    keys_BHSE, values_BHSE = torch.randn(2, B, H, S, E, **place)

    def plain():
        keys, values = keys_BHSE.permute(2, 0, 1, 3), values_BHSE.permute(2, 0, 1, 3)
        return step_attention(q_BHE, keys, values, Positions(positions_SE))

    def fused_by_torch():
        scores_BH1S = (q_BHE @ positions_SE.t())[:, :, None] * E**-0.5
        return F.scaled_dot_product_attention(q_BHE[:, :, None], keys_BHSE, values_BHSE, scores_BH1S)[:, :, 0]

    cases = {"plain": plain, "scaled_dot_product_attention": fused_by_torch}
    kernels = attention_kernels("triton", torch.device(args.device)) if args.device.startswith("cuda") else None
    if kernels is not None:
        slots = kernels.Slots(keys_BHSE.flatten(0, 1), values_BHSE.flatten(0, 1), H, positions_SE)
        p_GS = torch.empty(B * H, S, device=args.device, dtype=at_least_fp32(q_BHE[:0]).dtype)
        out_BHE = torch.empty_like(q_BHE)

        def triton():
            kernels.attend(q_BHE.flatten(0, 1), slots, None, p_GS, out_BHE.flatten(0, 1))
            return out_BHE

        cases["Triton kernel"] = triton
    expected = plain().float()
    tolerance = 1e-4 if args.dtype == "fp32" else 3e-2
    for name, function in cases.items():
        if not (function().float() - expected).abs().max() < tolerance * expected.abs().max():
            raise RuntimeError(f"{name} does not compute what the plain twin does")
    source, target = keys_BHSE.flatten(), torch.empty_like(keys_BHSE).flatten()
    cases["a copy"] = lambda: target.copy_(source)
    with torch.no_grad():
        loops = [repeated(function) for function in cases.values()]
        times = [time / CALLS for time in alternating_medians(loops, args.device, args.repeats)]
    read = 2 * keys_BHSE.numel() * keys_BHSE.element_size()
    speeds = {name: read / time for name, time in zip(cases, times)}
    whole = speeds["a copy"]
    rows = [[name, time * 1e6, read / time / 1e9, read / time / whole] for name, time in zip(cases, times)]
    table(["", "microseconds", "GB/s of keys and values", "to a copy"], rows)
    return {
        "microseconds": {name: round(time * 1e6, 2) for name, time in zip(cases, times)},
        "gigabytes_per_second": {name: round(speed / 1e9, 3) for name, speed in speeds.items()},
    }


def repeated(function):
    def loop():
        for _ in range(CALLS):
            function()

    return loop
