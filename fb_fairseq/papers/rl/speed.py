"""Frames per second of training, and latency of an acting step early and late in an episode."""

import statistics
from time import perf_counter

import torch

from fb_fairseq.papers.rl.agent import AgentMemory
from fb_fairseq.papers.rl.options import AgentOptions, TrainingOptions
from fb_fairseq.papers.rl.trainer import Trainer

LATE_SPANS = 10  # "late" starts this many spans into an episode


def measure_speed(options: TrainingOptions, agent: AgentOptions, blocks: int, device: torch.device) -> dict[str, float]:
    """Measure training and acting.

    Args:
        blocks: number of training blocks to time, after one for warm-up.

    Returns:
        Number of environments, steps per block, ``fps`` (median over the blocks), and the milliseconds of an acting
        step of all environments: ``act_ms`` as soon as memory is full, and ``act_ms_ten_spans_later``.
    """
    trainer = Trainer(options, agent, device)
    trainer.train_block()
    times = []
    for _ in range(blocks):
        start = perf_counter()
        trainer.train_block()
        _synchronise(device)
        times.append(perf_counter() - start)
    frames = options.environments * options.block
    early, late = _acting_times(trainer, agent.span)
    return {
        "environments": options.environments,
        "block": options.block,
        "fps": round(frames / statistics.median(times), 1),
        "act_ms": round(1000 * early, 3),
        "act_ms_ten_spans_later": round(1000 * late, 3),
    }


def _acting_times(trainer: Trainer, span: int) -> tuple[float, float]:
    """Median seconds of an acting step over two spans of an episode: the first with a full memory, and a late one."""
    actor = trainer.agent.actor(AgentMemory.initial(trainer.options.environments, trainer.device))
    observation = torch.as_tensor(trainer.observation, device=trainer.device)
    starts = torch.ones(trainer.options.environments, dtype=torch.bool, device=trainer.device)
    times = []
    for _ in range((LATE_SPANS + 1) * span):
        start = perf_counter()
        actor.step(observation, starts)
        actor.record_actions(torch.zeros(trainer.options.environments, dtype=torch.long, device=trainer.device))
        _synchronise(trainer.device)
        times.append(perf_counter() - start)
        starts = torch.zeros_like(starts)
    return statistics.median(times[span : 2 * span]), statistics.median(times[-span:])


def _synchronise(device: torch.device) -> None:
    """Wait until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize()
