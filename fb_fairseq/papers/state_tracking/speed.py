"""Steps per second of training and of decoding: what a model costs."""

import time
from dataclasses import replace

import torch

from fb_fairseq.papers.state_tracking.trainer import Options, Trainer

DECODED = 64  # steps that are decoded at once between two looks at the clock


def measure(options: Options, device: torch.device, seconds: float) -> dict[str, float]:
    """Train on the longest sequences, then decode one sequence step by step, for so many seconds each.

    Returns:
        "training" and "decoding", in steps per second.
    """
    trainer = Trainer(options, device)
    trainer.size = options.longest
    steps = trainer.problem.steps(options.longest)
    steps *= max(1, options.tokens // steps)
    trainer.options = replace(options, updates=10**9)
    training = _rate(lambda: trainer.train_update(), steps, seconds, device)
    model = trainer.model.eval()
    inputs = torch.randint(trainer.sequences.symbols, (1, DECODED), device=device)
    return {"training": training, "decoding": _rate(lambda: model.decode(inputs), DECODED, seconds, device)}


def _rate(run, steps: int, seconds: float, device: torch.device) -> float:
    """Steps per second of ``run``, which does so many; its first call is not counted."""
    run()
    begin, calls = _now(device), 0
    while calls < 2 or _now(device) - begin < seconds:
        run()
        calls += 1
    return calls * steps / (_now(device) - begin)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
