"""Frames per second of training, and latency of an acting step early and late in an episode."""

import statistics
from collections.abc import Callable
from time import perf_counter

import torch

from fb_fairseq.papers.rl.agent import Actor, AgentMemory
from fb_fairseq.papers.rl.options import AgentOptions, TrainingOptions
from fb_fairseq.papers.rl.trainer import Trainer

LATE_SPANS = 10  # "late" starts this many spans into an episode


class Acting:
    """An agent that sees the same observations again and again, in episodes without end."""

    def __init__(self, trainer: Trainer):
        self.trainer = trainer
        self.actor = Actor(trainer.agent, AgentMemory.initial(trainer.options.environments, trainer.device))
        self.observation_BO, starts_B = trainer.play.seen()
        self.starts_B = torch.zeros_like(starts_B)

    def __call__(self, steps: int) -> None:
        """Act for so many steps."""
        for _ in range(steps):
            logits_BA, _ = self.actor.step(self.observation_BO, self.starts_B)
            self.actor.previous_B = logits_BA.argmax(-1)


def measure_speed(options: TrainingOptions, agent: AgentOptions, blocks: int, device: torch.device) -> dict[str, float]:
    """Measure training, over so many blocks, and acting: ``fps``, and the milliseconds of an acting step of all
    environments as soon as memory is full, and ten spans later."""
    trainer = Trainer(options, agent, device)
    trainer.train_block()
    training = _seconds(trainer.train_block, blocks, device)
    acting, span = Acting(trainer), agent.span
    times = _seconds(lambda: acting(1), (LATE_SPANS + 1) * span, device)
    return {
        "environments": options.environments,
        "block": options.block,
        "fps": round(options.environments * options.block / statistics.median(training), 1),
        "act_ms": round(1000 * statistics.median(times[span : 2 * span]), 3),
        "act_ms_ten_spans_later": round(1000 * statistics.median(times[-span:]), 3),
    }


def _seconds(function: Callable[[], None], calls: int, device: torch.device) -> list[float]:
    """The time that each of so many calls takes."""
    times = []
    for _ in range(calls):
        start = perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(perf_counter() - start)
    return times
