"""Training: tokens per second of forward, loss and backward of a block with a full memory, and what is kept for backward.

The models take turns. Without embeddings, output layer and optimizer, which are the same for all.
"""

from fb_fairseq.benchmark.measure import MODELS, alternating_medians, block_and_memory, build, saved_bytes, table
from fb_fairseq.modules import StreamState


def add_arguments(parser) -> None:
    parser.add_argument("--block", type=int, default=64, help="steps of a block")
    parser.add_argument("--repeats", type=int, default=5, help="the median is of so many runs")


def run(args) -> dict:
    cases = [case(name, args) for name in MODELS]
    times = alternating_medians([step for step, _ in cases], args.device, args.repeats)
    speeds = {name: args.batch_size * args.block / time for name, time in zip(MODELS, times)}
    ratios = {name: speed / speeds["transformer"] for name, speed in speeds.items()}
    rows = [[name, speeds[name], ratios[name], saved] for name, (_, saved) in zip(MODELS, cases)]
    table(["", "tokens/s", "ratio to the Transformer", "bytes kept for backward"], rows)
    return {
        "tokens_per_second": {name: round(speed, 1) for name, speed in speeds.items()},
        "ratio": {f"{name}_vs_transformer": round(ratio, 4) for name, ratio in ratios.items() if name != "transformer"},
        "saved_bytes": {name: saved for name, (_, saved) in zip(MODELS, cases)},
    }


def case(name: str, args):
    """A training step of a model, and the bytes it keeps."""
    model = build(name, args)
    x_TBD, state = block_and_memory(model, args)

    def forward():
        return model.run_block(x_TBD, StreamState(state.memory_KCBD))[0]

    def step():
        forward().float().pow(2).mean().backward()

    return step, saved_bytes(forward, model)
