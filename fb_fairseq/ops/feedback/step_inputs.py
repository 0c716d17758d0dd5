"""The arguments of a decoding step.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions


class StepInputs(NamedTuple):
    """A step of decoding, before it runs.

    Attributes:
        x_BD: the step's embedding, x^0.
        ring: the memory, with room for the step.
        options: of the loop.
        encoder: each layer's keys and values of the encoder's output; empty if there is no encoder.
    """

    x_BD: Tensor
    ring: MemoryRing
    options: FeedbackOptions
    encoder: Sequence[EncoderContext] = ()
