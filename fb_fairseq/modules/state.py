"""The state of streams, an argument and a return value of models: modules store nothing of a stream.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor

from fb_fairseq.errors import UserError


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
        K, (B, D) = memories, x_TBD.shape[1:]
        if state is None:
            return StreamState(x_TBD.new_zeros(K, 0, B, D))
        shape = state.memory_KCBD.shape
        if (shape[0], shape[2], shape[3]) != (K, B, D):
            raise UserError(
                f"the streams' memory has {shape[0]} vectors per step, {shape[2]} streams and width {shape[3]}; "
                f"the model needs {K}, {B} and {D}: start with an empty memory (--reset-dataloader)"
            )
        return StreamState(state.memory_KCBD[:, -span:].to(x_TBD))

    def extended(self, new_KTBD: Tensor, span: int) -> "StreamState":
        """The state after a block whose steps have left these memories: the last ``span`` steps."""
        memory = torch.cat([self.memory_KCBD, new_KTBD.detach()], 1)[:, -span:]
        # A copy, because the slice would keep all of the block alive.
        return StreamState(memory.clone())

    def split(self, parts: int) -> list["StreamState"]:
        """The states of B / ``parts`` streams each, in order. They are views."""
        return [StreamState(memory) for memory in self.memory_KCBD.chunk(parts, 2)]

    @staticmethod
    def joined(states: Sequence["StreamState"]) -> "StreamState":
        """The state of all these streams side by side. All must carry the same number of steps."""
        return states[0] if len(states) == 1 else StreamState(torch.cat([state.memory_KCBD for state in states], 2))
