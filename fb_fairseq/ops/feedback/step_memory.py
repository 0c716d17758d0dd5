"""The memory of decoding step by step, of any model."""

from abc import ABC, abstractmethod

from torch import Tensor


class StepMemory(ABC):
    """The memory of B streams in decoding step by step.

    Attributes:
        position: number of steps seen.
    """

    position: int

    @abstractmethod
    def reset(self, age_B: Tensor) -> None:
        """Forget what is older than the streams' episodes. ``age_B``: how many of each stream's last steps belong to
        its episode; 0: a new one starts.
        """

    @abstractmethod
    def reorder(self, order: Tensor) -> None:
        """Take the streams in another order; some may be taken more than once, others not at all (beam search)."""

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that are kept of the past."""
