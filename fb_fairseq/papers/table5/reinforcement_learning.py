"""Agents in mazes: training with A2C, environments included; in inference the agents' steps alone."""

from functools import partial

import torch

from fb_fairseq.papers.rl.presets import preset_options
from fb_fairseq.papers.rl.speed import Acting
from fb_fairseq.papers.rl.trainer import Trainer
from fb_fairseq.papers.table5.task import SHARED, TRANSFORMER, Task, Work

AGENTS = {TRANSFORMER: "transformer", SHARED: "feedback"}


class ReinforcementLearning(Task):
    """The agents of v3 §4.1; those with feedback share the projections of the memory."""

    name = "reinforcement learning"
    kinds = (TRANSFORMER, SHARED)

    def trainer(self, kind: str, batch: int) -> Trainer:
        """A trainer with an agent of random parameters in so many environments."""
        overrides = {**self.sizes.options, "environments": batch}
        training, agent = preset_options("maze", AGENTS[kind], self.sizes.small, overrides)
        return Trainer(training, agent, torch.device(self.device))

    def training(self, kind, batch):
        trainer = self.trainer(kind, batch)
        block, span = trainer.options.block, trainer.agent.options.span
        return Work(self.repeated(trainer.train_block, -(-span // block)), trainer.train_block, batch * block)

    def inference(self, kind, batch):
        acting = Acting(self.trainer(kind, batch))
        prepare = partial(acting, acting.trainer.agent.options.span)
        return Work(prepare, partial(acting, self.sizes.steps), batch * self.sizes.steps)

    def state_bytes(self, kind):
        acting = Acting(self.trainer(kind, 1))
        acting(acting.trainer.agent.options.span + 1)
        return acting.actor.ring.nbytes()
