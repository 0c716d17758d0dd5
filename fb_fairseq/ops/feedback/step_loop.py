"""What a step loop is: a way to run the steps of a block, and of decoding. ``loops.py`` lists them.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from abc import ABC, abstractmethod
from typing import Optional, Sequence, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.decoding.stepper import PlainStepper, Stepper
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackDropouts, FeedbackOptions, FeedbackWeights

DEVICES = ("cpu", "cuda")
REFERENCE = "reference"  # the loop that the others are compared with
FALLBACK = "torch"  # the loop that runs where another one does not
AUTO = "auto"  # the choice among the others


class StepLoop(ABC):
    """A way to run the steps of the Feedback Transformer. All of them compute what ``reference.py`` computes.

    Attributes:
        name: as ``--step-loop`` calls it.
        summary: what it is, for the help.
        runs: where it runs, for the docs.
        devices: types of devices on which it runs by itself; elsewhere another loop does its work.
        steps_on: types of devices on which it has a way of its own to run decoding steps.
        preferred_on: types of devices on which ``auto`` takes it wherever it can run.
        reason: why it runs, for the log.
        warm_up_blocks: how many blocks of the same shapes it takes until it runs as it will from then on.
    """

    name: str
    summary: str
    runs: str
    devices: Tuple[str, ...] = DEVICES
    steps_on: Tuple[str, ...] = ()
    preferred_on: Tuple[str, ...] = ()
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

    def problem(self, device: torch.device) -> Optional[str]:
        """Why the loop cannot run on a device of this machine; None: it can."""
        return None if device.type in self.devices else f"it does not run on {device.type}"

    def details(self) -> str:
        """What it runs with here, for ``python -m fb_fairseq env``; or nothing."""
        return ""
