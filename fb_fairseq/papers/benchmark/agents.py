"""Agents in mazes: training with A2C, environments included; in inference the agents' steps alone."""

from functools import partial

import torch

from fb_fairseq.papers.benchmark.tasks import SHARED, TRANSFORMER, Task
from fb_fairseq.papers.benchmark.work import Work, repeated
from fb_fairseq.papers.rl.agent import Actor
from fb_fairseq.papers.rl.presets import preset_options
from fb_fairseq.papers.rl.trainer import Trainer

AGENTS = {TRANSFORMER: "transformer", SHARED: "feedback"}


class ReinforcementLearning(Task):
    """The agents of v3 §4.1; those with feedback share the projections of the memory.

    ``sizes``: which preset of the maze is taken (``small``), what differs from it (``options``), how many
    environments there are (``batch``), and how many steps of inference are timed at once (``steps``), all with a full
    memory.
    """

    name = "reinforcement learning"
    kinds = (TRANSFORMER, SHARED)
    full = dict(small=False, options={}, steps=64, batch=1024)
    small = dict(small=True, options={}, steps=16, batch=64)

    def trainer(self, kind: str, batch: int) -> Trainer:
        """A trainer with an agent of random parameters in so many environments."""
        overrides = {**self.sizes.options, "environments": batch}
        training, agent = preset_options("maze", AGENTS[kind], self.sizes.small, overrides)
        return Trainer(training, agent, torch.device(self.device))

    def training(self, kind, batch):
        trainer = self.trainer(kind, batch)
        block, span = trainer.options.block, trainer.agent.options.span
        prepare = repeated(trainer.train_block, self.device, -(-span // block))
        return Work(prepare, trainer.train_block, batch * block)

    def inference(self, kind, batch):
        trainer = self.trainer(kind, batch)
        actor = Actor(trainer.agent, trainer.memory)
        steps = self.sizes.steps
        prepare = partial(act, trainer, actor, trainer.agent.options.span)
        return Work(prepare, partial(act, trainer, actor, steps), batch * steps, state=actor.ring.nbytes)


def act(trainer: Trainer, actor: Actor, steps: int) -> None:
    """Act for so many steps, on the same observations again and again, in episodes without end."""
    observation_BO, starts_B = trainer.play.seen()
    for _ in range(steps):
        logits_BA, _ = actor.step(observation_BO, torch.zeros_like(starts_B))
        actor.previous_B = logits_BA.argmax(-1)
