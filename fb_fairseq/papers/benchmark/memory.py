"""Training memory: the peak memory of a training step on a block, without parameters and carried memory.

A training step is a forward and a backward pass; the gradients of the parameters are included. Measures the Feedback
Transformer with each of its step loops, with and without recomputation, and a Transformer of the same size that carries
a full memory too.
"""

import argparse

from fb_fairseq.papers.benchmark.measure import peak_bytes, progress, table
from fb_fairseq.papers.benchmark.models import Case, add_block, add_only, only
from fb_fairseq.papers.benchmark.train import cases_on, training_step, warm_up

RECOMPUTING = Case("transformer", {"checkpoint_activations": True})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_block(parser)
    add_only(parser)


def run(args: argparse.Namespace) -> dict:
    """Measure the peak memory of a training step of each case."""
    peaks = {}
    cases = only({**cases_on(args.device), "transformer, recomputing": RECOMPUTING}, args)
    for number, (name, case) in enumerate(cases.items(), 1):
        progress(f"{name}, {number} of {len(cases)}")
        step = training_step(case, args)
        warm_up(step, args.device, case)
        step.model.zero_grad(set_to_none=True)
        peaks[name] = peak_bytes(step, args.device)
        del step  # frees its memory before the next model is built
    progress()
    relative = {name: peak / peaks["transformer"] for name, peak in peaks.items()}
    table(["", "MB", "relative to the Transformer"], [[name, peaks[name] / 1e6, relative[name]] for name in peaks])
    ratios = {
        f"{name.replace(', ', '_')}_vs_transformer": round(ratio, 4)
        for name, ratio in relative.items()
        if name != "transformer"
    }
    return {"peak_bytes": peaks, "ratio": ratios}
