"""A model whose decoding steps are run, and a step operation by operation.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.decoding.ring import MemoryRing, attend_window
from fb_fairseq.ops.feedback.reference import feedback_step
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions, FeedbackWeights, StepOutput
from fb_fairseq.ops.threads import loop_threads


class StepModel(ABC):
    """A model whose decoding steps are run.

    Attributes:
        plain_layers: whether its steps are ``feedback_step``; what has its own arithmetic for that checks this.
    """

    plain_layers = True

    @abstractmethod
    def step_weights(self, ring: MemoryRing, device: torch.device) -> FeedbackWeights:
        """The weights that a step on a ring needs."""

    @abstractmethod
    def fixed_weights(self) -> bool:
        """False if a layer is not a plain ``nn.Linear``. Packed weights must then be made again for each sequence."""

    @abstractmethod
    def step_parameters(self) -> list[Tensor]:
        """The parameters that ``step_weights`` depends on, and perhaps others."""

    @abstractmethod
    def largest_product(self, rows: int) -> int:
        """Multiplications and additions of a step's largest product."""

    def plain_step(
        self, x_BD: Tensor, ring: MemoryRing, options: FeedbackOptions, encoder: Sequence[EncoderContext] = ()
    ) -> StepOutput:
        """Run the layers over one step, operation by operation, and store what it leaves in the ring."""
        weights = self.step_weights(ring, x_BD.device)
        windows = ring.windows(weights, options, x_BD)

        def attend_memory(l: int, query_BHE: Tensor) -> Tensor:
            return attend_window(query_BHE, windows[l])

        step = feedback_step(x_BD, attend_memory, weights, options, encoder=encoder)
        ring.store(step.memory_KBD, weights, options)
        return step


class Step(NamedTuple):
    """A decoding step.

    Attributes:
        x_BD: the step's embedding.
        ring: it has room for the step, whose memory goes there. Whoever runs the step does not count it.
        encoder: each layer's keys and values of the encoder's output; empty in language models.
    """

    model: StepModel
    x_BD: Tensor
    ring: MemoryRing
    options: FeedbackOptions
    encoder: Sequence[EncoderContext] = ()


def torch_step(step: Step) -> StepOutput:
    """Run a step operation by operation; see ``StepModel.plain_step``."""
    with loop_threads(step.x_BD.device, step.model.largest_product(len(step.x_BD))):
        return step.model.plain_step(*step[1:])
