"""Frames a second of training, and how long an acting step takes early and late in an episode."""

import statistics
from time import perf_counter
from typing import Dict

import torch

from fb_fairseq.rl.a2c import Trainer, TrainingOptions
from fb_fairseq.rl.agent import AgentMemory, AgentOptions


def measure(options: TrainingOptions, agent: AgentOptions, blocks: int, device: torch.device) -> Dict[str, float]:
    """Training: median over the blocks, after one to warm up. Acting: milliseconds of all environments' step, with a memory
    that is filled already, at steps far apart."""
    trainer = Trainer(options, agent, device)
    trainer.block()
    times = []
    for _ in range(blocks):
        began = perf_counter()
        trainer.block()
        synchronise(device)
        times.append(perf_counter() - began)
    frames = options.environments * options.block
    early, late = acting_times(trainer, agent.span)
    return {
        "environments": options.environments,
        "block": options.block,
        "fps": round(frames / statistics.median(times), 1),
        "act_ms": round(1000 * early, 3),
        "act_ms_ten_spans_later": round(1000 * late, 3),
    }


def acting_times(trainer: Trainer, span: int):
    """Medians of a step's seconds: as soon as memory is full, and ten times as far into an episode."""
    actor = trainer.agent.actor(AgentMemory.empty(trainer.options.environments, trainer.device))
    observation = torch.as_tensor(trainer.observation, device=trainer.device)
    starts = torch.ones(trainer.options.environments, dtype=torch.bool, device=trainer.device)
    times = []
    for _ in range(11 * span):
        began = perf_counter()
        actor.step(observation, starts)
        actor.acted(torch.zeros(trainer.options.environments, dtype=torch.long, device=trainer.device))
        synchronise(trainer.device)
        times.append(perf_counter() - began)
        starts = torch.zeros_like(starts)
    return statistics.median(times[span : 2 * span]), statistics.median(times[-span:])


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
