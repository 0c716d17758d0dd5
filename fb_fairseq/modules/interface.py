"""The interface of all stacks of layers, the LSTM included: run a block of steps at once, or one step after the other.

Language models, agents and the benchmark run stacks through this interface. Beyond it, ``TransformerStack`` has steps
with an encoder (``decode_step``), which translation models run, and for inspection the weights of attention
(``memory_attention``).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Optional

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.ops.dropout import Dropout, draw_dropout
from fb_fairseq.ops.feedback.step_memory import StepMemory


@dataclass
class StreamState:
    """The memory that B streams carry from one block to the next: constants, without gradient.

    Attributes:
        memory_KCBD: vectors of the last C <= S steps, oldest first, before norm and projections. Feedback Transformer:
            the memories m (K = 1, or L where each layer has its own). Relative Transformer and all-attention: the
            inputs of the L layers. LSTM: hidden and cell states (K = 2 L, C = 1).
    """

    memory_KCBD: Tensor

    @staticmethod
    def entering(state: Optional["StreamState"], memories: int, span: int, x_TBD: Tensor) -> "StreamState":
        """The state at the start of a block, in the type and on the device of its embeddings.

        Args:
            state: what the block before has left; None at the start of streams. Steps beyond the span are dropped.
            memories: K of the model.
        """
        _, B, D = x_TBD.shape
        if state is None:
            return StreamState(x_TBD.new_zeros(memories, 0, B, D))
        shape = state.memory_KCBD.shape
        if (shape[0], shape[2], shape[3]) != (memories, B, D):
            raise UserError(
                f"the streams' memory has {shape[0]} vectors per step, {shape[2]} streams and width {shape[3]}; "
                f"the model needs {memories}, {B} and {D}: start with an empty memory "
                "(fairseq-train: --reset-dataloader)"
            )
        return StreamState(state.memory_KCBD[:, -span:].to(x_TBD))

    def extended(self, new_KTBD: Tensor, span: int) -> "StreamState":
        """The state after a block whose steps have left these memories: the last ``span`` steps."""
        memory = torch.cat([self.memory_KCBD, new_KTBD.detach()], 1)[:, -span:]
        # A copy, because the slice would keep all of the block alive.
        return StreamState(memory.clone())

    def split(self, parts: int) -> list["StreamState"]:
        """The states of B / ``parts`` streams each, in order. They are views. ``parts`` divides B."""
        return [StreamState(memory) for memory in self.memory_KCBD.chunk(parts, 2)]

    @staticmethod
    def joined(states: Sequence["StreamState"]) -> "StreamState":
        """The state of all these streams side by side. All must carry the same number of steps."""
        return states[0] if len(states) == 1 else StreamState(torch.cat([state.memory_KCBD for state in states], 2))


class Report(NamedTuple):
    """A stack's additions to the log and to the training loss.

    Attributes:
        logged: measures by their names in the log, scalars.
        penalty: in nats per target, to be added to the training loss; None: nothing.
    """

    logged: dict[str, Tensor]
    penalty: Tensor | None = None


class Stack(nn.Module, ABC):
    """Layers with memory, from embeddings [T, B, D] to features [T, B, D].

    Attributes:
        options: a frozen dataclass with at least ``decoder_layers``, ``decoder_embed_dim``, ``embedding_dropout`` and
            ``output_dropout``.
        sequential: whether the steps of a block run one after the other, in small operations.
    """

    sequential = False

    @abstractmethod
    def run_block(
        self, x_TBD: Tensor, state: StreamState | None = None, age_TB: Tensor | None = None
    ) -> tuple[Tensor, StreamState]:
        """Run the layers over a block of embeddings.

        Args:
            x_TBD: T steps of B streams.
            state: what the streams carry in; None at their start.
            age_TB: at each step, the age of each stream's episode, beyond which it does not look back: 0 at the first
                step of an episode, 1 at the next one, …; None: it looks as far as its memory goes.

        Returns:
            Features [T, B, D], after the final norm, and the state after the block.
        """

    @abstractmethod
    def run_step(self, x_BD: Tensor, memory: StepMemory) -> Tensor:
        """Run the layers over one step, and add the step to ``memory``. Returns features [B, D], as ``run_block``."""

    @abstractmethod
    def new_ring(self, storage: str = "keys-values") -> StepMemory:
        """An empty memory for ``run_step``. ``storage``: one of ``fb_fairseq.ops.feedback.ring.STORAGES``; has no
        effect on an LSTM.
        """

    @abstractmethod
    def ring_after(self, state: StreamState | None, storage: str = "keys-values") -> StepMemory:
        """A memory for ``run_step`` that continues where a block ended, with the parameters as they are now."""

    def report(self) -> Report:
        """The last block's additions to the log and the loss."""
        return Report({})

    def watching(self) -> AbstractContextManager[list[list[Tensor]]]:
        """Context in which each block and step leaves a list: its embeddings and the layers' outputs, [T, B, D] each;
        the last entry is the features. Inside, layers run by plain operations, so a block's entries are differentiable.
        """
        raise UserError(f"{type(self).__name__}: does not show what its layers return; give a model with attention")

    def clamp(self) -> list[nn.Parameter]:
        """Bring parameters that must be within [0, 1] back, and return them. To be called after each optimizer step."""
        return []

    def forward(
        self, x_TBD: Tensor, state: StreamState | None = None, age_TB: Tensor | None = None
    ) -> tuple[Tensor, StreamState]:
        """The same as ``run_block``."""
        return self.run_block(x_TBD, state, age_TB)

    def draw(self, p: float, shape: Sequence[int], like: Tensor) -> Dropout | None:
        """A dropout mask of that shape, on the device of ``like``; None in evaluation, and where p is 0."""
        return draw_dropout(p if self.training else 0.0, shape, like)
