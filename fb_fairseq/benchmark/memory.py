"""Training memory: the most that a forward and backward pass of a block needs, beside parameters and carried memory.

The gradients of the parameters count. The Feedback Transformer with each of its step loops, with and without
recomputation, and the Transformer of the same size, which also carries a full memory.
"""

from fb_fairseq.benchmark.measure import peak_bytes, table
from fb_fairseq.benchmark.train import CASES, training_step

MODELS = {**CASES, "transformer, recomputing": ("transformer", {"checkpoint_activations": True})}


def add_arguments(parser) -> None:
    parser.add_argument("--block", type=int, default=64, help="steps of a block")


def run(args) -> dict:
    peaks = {}
    for name, case in MODELS.items():
        step = training_step(case, args)
        if args.device.startswith("cuda"):
            step()  # libraries take memory of their own in a first call
            step.model.zero_grad(set_to_none=True)
        peaks[name] = peak_bytes(step, args.device)
        del step
    table(
        ["", "MB", "to the Transformer"],
        [[name, peak / 1e6, peak / peaks["transformer"]] for name, peak in peaks.items()],
    )
    ratios = {f"{name.replace(', ', '_')}_vs_transformer": peaks[name] / peaks["transformer"] for name in peaks}
    del ratios["transformer_vs_transformer"]
    return {"peak_bytes": peaks, "ratio": {name: round(ratio, 4) for name, ratio in ratios.items()}}
