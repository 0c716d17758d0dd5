"""What a step loop is: a way to run the steps of a block, and of decoding. ``loops.py`` lists them.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.decoding.stepper import PlainStepper, Stepper
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackDropouts, FeedbackOptions, FeedbackWeights

KERNELS = ("torch", "triton")
DEVICES = ("cpu", "cuda")
REFERENCE = "reference"  # the loop that the others are compared with
FALLBACK = "fast"  # the loop that runs where another one does not
AUTO = "auto"  # the choice among the others
SEPARATOR = "+"  # between a loop and its kernel, where people read and write them


class LoopChoice(NamedTuple):
    """A step loop, and what computes its attention: one of ``KERNELS``. As text ``graph`` or ``graph+triton``."""

    loop: str
    kernel: str = KERNELS[0]

    def __str__(self) -> str:
        return self.loop if self.kernel == KERNELS[0] else f"{self.loop}{SEPARATOR}{self.kernel}"

    @classmethod
    def parse(cls, text: str) -> "LoopChoice":
        """The choice that a text stands for; nothing is checked."""
        loop, _, kernel = text.partition(SEPARATOR)
        return cls(loop, kernel or KERNELS[0])


class StepLoop(ABC):
    """A way to run the steps of the Feedback Transformer. All of them compute what ``reference.py`` computes.

    Attributes:
        name: as ``--step-loop`` calls it.
        summary: what it is, for the help.
        runs: where it runs, for the docs.
        kernels: those of ``KERNELS`` that it can use.
        devices: types of devices on which it runs by itself; elsewhere another loop does its work.
        steps_on: types of devices on which it has a way of its own to run decoding steps.
        reason: why it runs, for the log.
        warm_up_blocks: how many blocks of the same shapes it takes until it runs as it will from then on.
    """

    name: str
    summary: str
    runs: str
    kernels: Tuple[str, ...] = KERNELS[:1]
    devices: Tuple[str, ...] = DEVICES
    steps_on: Tuple[str, ...] = ()
    reason = "asked for by --step-loop"
    warm_up_blocks = 0

    @abstractmethod
    def run_block(
        self,
        x_TBD: Tensor,
        memory_KCBD: Tensor,
        weights: FeedbackWeights,
        options: FeedbackOptions,
        dropouts: FeedbackDropouts = FeedbackDropouts(),
        active: Optional[Sequence[bool]] = None,
        encoder: Sequence[EncoderContext] = (),
        reach_TB: Optional[Tensor] = None,
    ) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        """Run a block of T steps; see ``fb_fairseq.ops.feedback.reference.feedback_block``."""

    def new_stepper(self, asked: bool = True) -> Stepper:
        """What runs the decoding steps of a model.

        Args:
            asked: whether the loop was asked for; then it is worth a line in the log that a step runs otherwise.
        """
        return PlainStepper()

    def taken_untried(self, device: torch.device) -> bool:
        """Whether ``auto`` takes the loop on this device wherever it can run, without a trial."""
        return False

    def problem(self, device: torch.device) -> Optional[str]:
        """Why the loop cannot run on a device of this machine; None: it can."""
        return None if device.type in self.devices else f"it does not run on {device.type}"

    def details(self) -> str:
        """What it runs with here, for ``python -m fb_fairseq env``; or nothing."""
        return ""
