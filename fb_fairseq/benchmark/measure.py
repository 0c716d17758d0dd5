"""Clocks and scales of the benchmark."""

import time
from typing import Callable, List

import torch

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, TransformerOptions
from fb_fairseq.ops.buffers import Buffers, release_free

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MODELS = {"feedback": FeedbackTransformer, "transformer": RelativeTransformer, "all-attention": AllAttention}


def build(name: str, args, **changes):
    """A stack of the sizes that the command line gives; all-attention has --ffn-dim persistent vectors, which are as many
    parameters as a feed-forward sublayer of that width."""
    if name == "all-attention":
        changes["persistent_memory_size"] = args.ffn_dim
    options = TransformerOptions(
        decoder_layers=args.layers,
        decoder_embed_dim=args.embed_dim,
        decoder_ffn_embed_dim=args.ffn_dim,
        decoder_attention_heads=args.heads,
        decoder_normalize_before=True,
        attention_span=args.span,
        **changes,
    )
    return MODELS[name](options).to(args.device, DTYPES[args.dtype])


def block_and_memory(model, args):
    """A block's embeddings [T, B, D], and a full memory to start with: two spans' worth of steps have passed."""
    x_TBD = torch.randn(args.block, args.batch_size, args.embed_dim, device=args.device, dtype=DTYPES[args.dtype])
    state = None
    with torch.no_grad():
        for _ in range(2 * args.span // args.block + 1):
            state = model.run_block(x_TBD, state)[1]
    return x_TBD, state


def seconds(function: Callable, device: str) -> float:
    """How long a call takes, until the device has done it."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    function()
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def alternating_medians(functions: List[Callable], device: str, repeats: int) -> List[float]:
    """Median seconds of each function; they take turns, so that a busy machine slows all alike."""
    for function in functions:
        function()
    times = [[seconds(function, device) for function in functions] for _ in range(repeats)]
    return [sorted(column)[repeats // 2] for column in zip(*times)]


def copy_speed(device: str) -> float:
    """Bytes a second that a large copy reads and writes."""
    source = torch.empty(256 << 20, dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    (time,) = alternating_medians([lambda: target.copy_(source)], device, 5)
    return 2 * source.numel() / time


def launches(function: Callable) -> int:
    """How many kernels, copies and graphs a call launches on a GPU."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        function()
        torch.cuda.synchronize()
    names = ("LaunchKernel", "GraphLaunch", "MemcpyAsync", "MemsetAsync")
    return sum(event.count for event in profile.key_averages() if any(name in event.key for name in names))


def saved_bytes(function: Callable, model: torch.nn.Module) -> int:
    """Bytes that are kept for the backward pass of what the function computes, the model's parameters not counted."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    before = Buffers.in_use
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function()  # held until all is counted: no address is used twice
    buffers = Buffers.in_use - before
    del result
    return sum(kept.values()) + buffers


def peak_bytes(function: Callable, device: str) -> int:
    """The most bytes of tensors that are there at once while the function runs, beyond those that were there before."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        function()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    release_free()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    changes = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    there = peak = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        there += event.nbytes()
        peak = max(peak, there)
    return peak


def table(head: List[str], rows: List[List]) -> None:
    """Print rows under a head, numbers to the right."""

    def text(x):
        return x if isinstance(x, str) else f"{x:,.3g}" if x < 100 else f"{x:,.0f}"

    cells = [head] + [[text(x) for x in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for first, *others in cells:
        print("  ".join([first.ljust(widths[0])] + [cell.rjust(w) for cell, w in zip(others, widths[1:])]))
