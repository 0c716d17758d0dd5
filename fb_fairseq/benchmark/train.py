"""Training: tokens per second of forward, loss and backward of a block with a full memory.

The Feedback Transformer with each of its step loops (on a GPU also as CUDA graphs, and with the Triton kernel), the
Transformer of the same size, and the all-attention network with as many persistent vectors as a feed-forward sublayer has
units; where fairseq is installed its own transformer_lm, which carries no memory, beside our Transformer without memory.
They take turns. Without embeddings, output layer and optimizer, which are the same for all. First it is checked that the
loops' gradients are the plain one's.
"""

import dataclasses

import torch

from fb_fairseq.benchmark.measure import (
    DTYPES,
    alternating_medians,
    block_and_memory,
    build,
    copy_speed,
    launches,
    table,
)
from fb_fairseq.benchmark.stock import NAME, VOCABULARY, stock_decoder
from fb_fairseq.modules import StreamState
from fb_fairseq.ops.feedback.graph import CAPTURE_AT

# Name: model, and options of it.
CASES = {
    "reference": ("feedback", {"step_loop": "reference"}),
    "fast": ("feedback", {"step_loop": "fast"}),
    "fast, recomputing": ("feedback", {"step_loop": "fast", "step_loop_recompute": True}),
    "transformer": ("transformer", {}),
    "all-attention": ("all-attention", {}),
}
GPU_CASES = {
    "fast, Triton": ("feedback", {"step_loop": "fast", "step_loop_kernel": "triton"}),
    "graph": ("feedback", {"step_loop": "graph"}),
    "graph, Triton": ("feedback", {"step_loop": "graph", "step_loop_kernel": "triton"}),
}
PLAIN = {"step_loop_kernel": "torch", "step_loop_recompute": False}
WITHOUT_MEMORY = "transformer, no memory"
WARM_UP = CAPTURE_AT + 1  # steps: a graph is captured when its shapes come often


def add_arguments(parser) -> None:
    parser.add_argument("--block", type=int, default=64, help="steps of a block")
    parser.add_argument("--repeats", type=int, default=5, help="the median is of so many runs")


def run(args) -> dict:
    gpu = args.device.startswith("cuda")
    cases = {**CASES, **GPU_CASES} if gpu else CASES
    check_gradients(args, [options for kind, options in cases.values() if kind == "feedback"])
    steps = {name: training_step(case, args) for name, case in cases.items()}
    stock = stock_decoder(args, args.block)
    if stock is not None:
        steps[WITHOUT_MEMORY] = training_step(cases["transformer"], args, full=False)
        steps[NAME] = stock_step(stock, args)
    if gpu:
        for step in steps.values():
            for _ in range(WARM_UP):
                step()
    times = alternating_medians(list(steps.values()), args.device, args.repeats)
    speeds = {name: args.batch_size * args.block / time for name, time in zip(steps, times)}
    rows = [[name, speed, speed / speeds["transformer"], speed / speeds["reference"]] for name, speed in speeds.items()]
    table(["", "tokens/s", "to the Transformer", "to the plain loop"], rows)
    ratios = {f"{name}_vs_transformer": speeds[name] / speeds["transformer"] for name in cases if name != "transformer"}
    ratios["fast_vs_reference"] = speeds["fast"] / speeds["reference"]
    if stock is not None:
        ratios["transformer_vs_stock"] = speeds[WITHOUT_MEMORY] / speeds[NAME]
    result = {
        "tokens_per_second": {name: round(speed, 1) for name, speed in speeds.items()},
        "ratio": {name.replace(", ", "_"): round(ratio, 4) for name, ratio in ratios.items()},
        "bandwidth": bandwidth(args, {name: speeds[name] for name, case in cases.items() if case[0] == "feedback"}),
    }
    if gpu:
        result["launches_per_step"] = {name: round(launches(step) / args.block, 1) for name, step in steps.items()}
        table(["", "kernel launches a step"], [list(item) for item in result["launches_per_step"].items()])
    return result


def bandwidth(args, speeds) -> dict:
    """How near the loops are to the bound of a device whose caches keep nothing: forward and backward pass each read
    every layer's weights once a step, and for each layer the keys and values of S slots of each stream."""
    D, L = args.embed_dim, args.layers
    weights = L * (2 * D * D + 2 * D * args.ffn_dim) + 2 * D * D
    slots = L * 2 * args.span * D * args.batch_size
    size = torch.empty(0, dtype=DTYPES[args.dtype]).element_size()
    moved, speed = 2 * (weights + slots) * size, copy_speed(args.device)
    shares = {name: tokens / args.batch_size * moved / speed for name, tokens in speeds.items()}
    print(f"\n{moved / 1e6:.1f} MB must move for a step of all streams; copies run at {speed / 1e9:.1f} GB/s.")
    table(["", "share of that"], [list(item) for item in shares.items()])
    return {
        "bytes_per_step": moved,
        "copy_gigabytes_per_second": round(speed / 1e9, 2),
        "share": {name: round(share, 4) for name, share in shares.items()},
    }


def training_step(case, args, full: bool = True):
    """A forward and backward pass over a block; ``full``: with a full memory, or an empty one."""
    kind, options = case
    model = build(kind, args, **options)
    x_TBD, state = block_and_memory(model, args)
    weights_TBD = torch.randn_like(x_TBD)

    def step():
        entering = StreamState(state.memory_KCBD) if full else None
        (model.run_block(x_TBD, entering)[0] * weights_TBD).float().mean().backward()

    step.model = model
    return step


def stock_step(decoder, args):
    tokens_BT = torch.randint(4, VOCABULARY, (args.batch_size, args.block), device=args.device)
    weights_BTD = torch.randn(*tokens_BT.shape, args.embed_dim, device=args.device)

    def step():
        (decoder.extract_features(tokens_BT, None)[0] * weights_BTD).float().mean().backward()

    return step


def check_gradients(args, loops) -> None:
    """
    Args:
        loops: options of step loops, the plain one first.

    Raises:
        RuntimeError: a loop does not compute what the plain one does.
    """
    model = build("feedback", args)
    x_TBD, state = block_and_memory(model, args)
    # (Not the sum of squares: after a layer norm it is constant.)
    weights_TBD, plain = torch.randn_like(x_TBD), None
    for options in loops:
        model.options = dataclasses.replace(model.options, **{**PLAIN, **options})
        for _ in range(WARM_UP):  # the last one is of a graph, if there is one
            model.zero_grad()
            (model.run_block(x_TBD, StreamState(state.memory_KCBD))[0] * weights_TBD).float().sum().backward()
            if options["step_loop"] != "graph":
                break
        gradients = torch.cat([parameter.grad.float().flatten() for parameter in model.parameters()])
        plain = gradients if plain is None else plain
        difference = float((gradients - plain).norm() / plain.norm())
        if not difference < (1e-3 if args.dtype == "fp32" else 0.1):
            raise RuntimeError(f"the gradients of {options} are not the plain loop's: they differ by {difference:.1%}")
