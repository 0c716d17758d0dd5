"""Training: tokens per second of forward, loss and backward of a block with a full memory.

The Feedback Transformer with each of its step loops, the Transformer of the same size, and the all-attention network with
as many persistent vectors as a feed-forward sublayer has units, and where fairseq is installed its own transformer_lm,
which has no carried memory; they take turns. Without embeddings, output layer and
optimizer, which are the same for all. First it is checked that the fast loop's gradients are the plain one's.
"""

import dataclasses

import torch

from fb_fairseq.benchmark.measure import alternating_medians, block_and_memory, build, table
from fb_fairseq.benchmark.stock import NAME, VOCABULARY, stock_decoder
from fb_fairseq.modules import StreamState

# Name: model, and options of it.
CASES = {
    "reference": ("feedback", {"step_loop": "reference"}),
    "fast": ("feedback", {"step_loop": "fast"}),
    "fast, recomputing": ("feedback", {"step_loop": "fast", "step_loop_recompute": True}),
    "transformer": ("transformer", {}),
    "all-attention": ("all-attention", {}),
}


def add_arguments(parser) -> None:
    parser.add_argument("--block", type=int, default=64, help="steps of a block")
    parser.add_argument("--repeats", type=int, default=5, help="the median is of so many runs")


def run(args) -> dict:
    check_gradients(args)
    steps = {name: training_step(name, args) for name in CASES}
    stock = stock_decoder(args, args.block)
    if stock is not None:
        steps[NAME] = stock_step(stock, args)
    times = alternating_medians(list(steps.values()), args.device, args.repeats)
    speeds = {name: args.batch_size * args.block / time for name, time in zip(steps, times)}
    rows = [[name, speed, speed / speeds["transformer"], speed / speeds["reference"]] for name, speed in speeds.items()]
    table(["", "tokens/s", "to the Transformer", "to the plain loop"], rows)
    ratios = {f"{name}_vs_transformer": speed / speeds["transformer"] for name, speed in speeds.items()}
    ratios["fast_vs_reference"] = speeds["fast"] / speeds["reference"]
    del ratios["transformer_vs_transformer"]
    if NAME in speeds:
        del ratios[f"{NAME}_vs_transformer"]
        ratios["transformer_vs_stock"] = speeds["transformer"] / speeds[NAME]
    return {
        "tokens_per_second": {name: round(speed, 1) for name, speed in speeds.items()},
        "ratio": {name.replace(", ", "_"): round(ratio, 4) for name, ratio in ratios.items()},
    }


def training_step(name: str, args):
    kind, options = CASES[name]
    model = build(kind, args, **options)
    x_TBD, state = block_and_memory(model, args)
    weights_TBD = torch.randn_like(x_TBD)

    def step():
        (model.run_block(x_TBD, StreamState(state.memory_KCBD))[0] * weights_TBD).float().mean().backward()

    return step


def stock_step(decoder, args):
    tokens_BT = torch.randint(4, VOCABULARY, (args.batch_size, args.block), device=args.device)
    weights_BTD = torch.randn(*tokens_BT.shape, args.embed_dim, device=args.device)

    def step():
        (decoder.extract_features(tokens_BT, None)[0] * weights_BTD).float().mean().backward()

    return step


def check_gradients(args) -> None:
    """
    Raises:
        RuntimeError: the fast loop does not compute what the plain one does.
    """
    model = build("feedback", args)
    x_TBD, state = block_and_memory(model, args)
    # (Not the sum of squares: after a layer norm it is constant.)
    weights_TBD, gradients = torch.randn_like(x_TBD), []
    for loop in ("reference", "fast"):
        model.options = dataclasses.replace(model.options, step_loop=loop)
        model.zero_grad()
        (model.run_block(x_TBD, StreamState(state.memory_KCBD))[0] * weights_TBD).float().sum().backward()
        gradients.append(torch.cat([parameter.grad.float().flatten() for parameter in model.parameters()]))
    difference = float((gradients[0] - gradients[1]).norm() / gradients[0].norm())
    if not difference < (1e-3 if args.dtype == "fp32" else 0.1):
        raise RuntimeError(f"the fast loop's gradients are not the plain one's: they differ by {difference:.1%}")
