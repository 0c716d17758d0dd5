"""Decoding step by step: time per token along an endless stream, and the bytes of the state.

Each model goes on from random embeddings, through the ring of --span slots. The stream is timed in ten parts: neither
time nor state may grow from the second one on.
"""

import torch

from fb_fairseq.benchmark.measure import DTYPES, MODELS, build, seconds, table
from fb_fairseq.modules.ring import STORAGES

PARTS = 10


def add_arguments(parser) -> None:
    parser.add_argument("--steps", type=int, default=20_000, help="length of the stream, in tokens")


def run(args) -> dict:
    results, rows = {}, []
    for name in MODELS:
        model = build(name, args).eval()
        for storage in STORAGES:
            milliseconds, sizes = stream(model, storage, args)
            results[f"{name}, {storage}"] = {"ms_per_token": milliseconds, "state_bytes": sizes}
            median, speed = sorted(milliseconds)[PARTS // 2], args.batch_size / sorted(milliseconds)[PARTS // 2] * 1e3
            rows.append([f"{name}, {storage}", milliseconds[1], median, milliseconds[-1], speed, sizes[1], sizes[-1]])
    head = ["", "ms/step, part 2", "median", "part 10", "tokens/s", "bytes, part 2", "part 10"]
    table(head, rows)
    return results


def stream(model, storage: str, args):
    """Milliseconds a step and bytes of the state in each part of the stream."""
    ring = model.new_ring(storage)
    x_BD = torch.randn(args.batch_size, args.embed_dim, device=args.device, dtype=DTYPES[args.dtype])
    steps = max(args.steps // PARTS, 1)

    def part():
        for _ in range(steps):
            model.run_step(x_BD, ring)

    milliseconds, sizes = [], []
    with torch.no_grad():
        for _ in range(PARTS):
            milliseconds.append(round(seconds(part, args.device) / steps * 1e3, 4))
            sizes.append(ring.nbytes())
    return milliseconds, sizes
