"""Decoding step by step: time per token along an endless stream, and the bytes of the state.

Each model goes on from random embeddings, through the ring of --span slots. The stream is timed in ten parts: neither
time nor state may grow from the second one on. Where fairseq is installed, its own transformer_lm decodes up to 4,096
tokens beside them; its state and time grow.
"""

import argparse
from typing import Callable

import torch

from fb_fairseq.benchmark.measure import DTYPES, MODELS, build, seconds, table
from fb_fairseq.benchmark.stock import NAME, VOCABULARY, state_bytes, stock_decoder
from fb_fairseq.modules.ring import STORAGES

PARTS = 10
LONGEST = 4096


def add_arguments(parser) -> None:
    parser.add_argument("--steps", type=int, default=20_000, help="length of the stream, in tokens")
    parser.add_argument("--storage", nargs="+", choices=STORAGES, default=list(STORAGES), help="what is kept of a step")
    parser.add_argument(
        "--equal-parameters",
        action="store_true",
        help="widen the Feedback Transformer's feed-forward sublayers until its layers have as many parameters as the "
        "Transformer's (shared projections save some)",
    )


def run(args) -> dict:
    results, rows = {}, []
    cases = {name: (name, {}) for name in MODELS}
    if args.device.startswith("cuda"):
        cases["feedback, graph"] = ("feedback", {"step_loop": "graph"})
        cases["feedback, graph, Triton"] = ("feedback", {"step_loop": "graph", "step_loop_kernel": "triton"})
    for name, (kind, options) in cases.items():
        model = build(kind, widened(args) if kind == "feedback" and args.equal_parameters else args, **options).eval()
        for storage in args.storage:
            milliseconds, sizes = stream(model, storage, args)
            results[f"{name}, {storage}"] = timed(
                f"{name}, {storage}", parameters(model), milliseconds, sizes, args, rows
            )
    stock = stock_decoder(args, args.steps + 2) if args.steps <= LONGEST else None
    if stock is not None:
        results[NAME] = timed(NAME, parameters(stock), *stock_stream(stock.eval(), args), args, rows)
    head = ["", "parameters", "ms/step, part 2", "median", "part 10", "tokens/s, whole", "bytes, part 2", "part 10"]
    table(head, rows)
    return results


def widened(args) -> argparse.Namespace:
    feedback, transformer = (parameters(build(name, args)) for name in ("feedback", "transformer"))
    units = (transformer - feedback) / (args.layers * (2 * args.embed_dim + 1))
    ffn_dim = args.ffn_dim + round(units)
    print(f"The Feedback Transformer's feed-forward sublayers have {ffn_dim} units instead of {args.ffn_dim}.")
    return argparse.Namespace(**{**vars(args), "ffn_dim": ffn_dim})


def parameters(model: torch.nn.Module) -> int:
    """Of the layers, without embeddings."""
    return sum(parameter.numel() for name, parameter in model.named_parameters() if not name.startswith("embed"))


def timed(name: str, size: int, milliseconds, sizes, args, rows) -> dict:
    speed = args.batch_size * PARTS / sum(milliseconds) * 1e3
    rows.append(
        [name, size, milliseconds[1], sorted(milliseconds)[PARTS // 2], milliseconds[-1], speed, sizes[1], sizes[-1]]
    )
    return {
        "parameters": size,
        "ms_per_token": milliseconds,
        "state_bytes": sizes,
        "tokens_per_second": round(speed, 1),
    }


def stream(model, storage: str, args):
    """Milliseconds a step and bytes of the state in each part of the stream."""
    ring = model.new_ring(storage)
    x_BD = torch.randn(args.batch_size, args.embed_dim, device=args.device, dtype=DTYPES[args.dtype])
    return in_parts(lambda t: model.run_step(x_BD, ring), ring.nbytes, args)


def stock_stream(decoder, args):
    tokens_BT = torch.randint(4, VOCABULARY, (args.batch_size, args.steps + 1), device=args.device)
    state = {}

    def step(t):
        decoder.extract_features(tokens_BT[:, : t + 1], None, incremental_state=state)

    return in_parts(step, lambda: state_bytes(state), args)


def in_parts(step: Callable[[int], None], nbytes: Callable[[], int], args):
    steps = max(args.steps // PARTS, 1)
    milliseconds, sizes = [], []
    with torch.no_grad():
        for part in range(PARTS):

            def run():
                for t in range(part * steps, (part + 1) * steps):
                    step(t)

            milliseconds.append(round(seconds(run, args.device) / steps * 1e3, 4))
            sizes.append(nbytes())
    return milliseconds, sizes
