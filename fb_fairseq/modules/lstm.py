"""The LSTM that the papers compare with, on streams: its state is carried from block to block."""

from dataclasses import dataclass
from typing import Optional, Tuple

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.state import StreamState
from fb_fairseq.ops.layers import Dropout, draw_dropout, dropout


@dataclass(frozen=True)
class LSTMOptions:
    """
    Raises:
        ValueError: an option is out of range; the message names it.
    """

    decoder_layers: int = 3
    decoder_embed_dim: int = 256
    dropout: float = 0.0
    embedding_dropout: float = 0.0
    output_dropout: float = 0.0

    def __post_init__(self):
        for name, value in vars(self).items():
            if name.startswith("decoder_") and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} {value}: give 1 or more")
            if name.endswith("dropout") and not 0 <= value < 1:
                raise ValueError(f"--{name.replace('_', '-')} {value}: give a probability below 1")


class LSTM(nn.Module):
    """Layers of LSTM, each as wide as the model, with dropout between them.

    A stream's state has 2 L vectors: of each layer the hidden state, then of each layer the cell state.
    """

    def __init__(self, options: Optional[LSTMOptions] = None):
        super().__init__()
        if options is not None:
            self.build(options)

    def build(self, options: LSTMOptions) -> None:
        self.options = options
        width, layers = options.decoder_embed_dim, options.decoder_layers
        self.lstm = nn.LSTM(width, width, layers, dropout=options.dropout if layers > 1 else 0.0)

    def draw(self, p: float, shape, like: Tensor) -> Optional[Dropout]:
        """A dropout mask in training, else None."""
        return draw_dropout(p if self.training else 0.0, shape, like)

    def run_block(
        self, x_TBD: Tensor, state: Optional[StreamState] = None, reach_TB: Optional[Tensor] = None
    ) -> Tuple[Tensor, StreamState]:
        """See ``TransformerStack.run_block``."""
        L = self.options.decoder_layers
        memory_KCBD = StreamState.entering(state, 2 * L, 1, x_TBD).memory_KCBD
        after = None
        if memory_KCBD.shape[1]:
            after = tuple(part.contiguous() for part in memory_KCBD[:, 0].chunk(2))
        if reach_TB is None:
            y_TBD, after = self.lstm(x_TBD, after)
        else:
            y_TBD, after = self._run_episodes(x_TBD, after, reach_TB == 0)
        y_TBD = dropout(y_TBD, self.draw(self.options.output_dropout, y_TBD.shape, y_TBD))
        return y_TBD, StreamState(torch.cat(after)[:, None].detach().to(x_TBD.dtype))

    def _run_episodes(self, x_TBD: Tensor, after, starts_TB: Tensor):
        """The state is zero where an episode starts; between such steps all runs at once."""
        first = [t for t, start in enumerate(starts_TB.any(1).tolist()) if start and t > 0]
        outputs = []
        for begin, end in zip([0, *first], [*first, len(x_TBD)]):
            if after is not None:
                after = tuple(part * ~starts_TB[begin][:, None] for part in after)
            y_TBD, after = self.lstm(x_TBD[begin:end], after)
            outputs.append(y_TBD)
        return torch.cat(outputs), after

    def ring_after(self, state: Optional[StreamState], storage: str = "keys-values") -> "LSTMMemory":
        """See ``TransformerStack.ring_after``."""
        memory = LSTMMemory()
        memory.state = state
        return memory

    def new_ring(self, storage: str) -> "LSTMMemory":
        """What decoding step by step keeps."""
        return LSTMMemory()

    def run_step(self, x_BD: Tensor, memory: "LSTMMemory") -> Tensor:
        """See ``TransformerStack.run_step``."""
        y_TBD, memory.state = self.run_block(x_BD[None], memory.state, memory.age_1B)
        memory.position += 1
        if memory.age_1B is not None:
            memory.age_1B = memory.age_1B + 1
        return y_TBD[0]

    def forward(
        self, x_TBD: Tensor, state: Optional[StreamState] = None, reach_TB: Optional[Tensor] = None
    ) -> Tuple[Tensor, StreamState]:
        return self.run_block(x_TBD, state, reach_TB)


class LSTMMemory:
    """An LSTM's state while it generates; see ``MemoryRing``."""

    def __init__(self):
        self.state: Optional[StreamState] = None
        self.position = 0
        self.age_1B: Optional[Tensor] = None

    def reset(self, age_B: Tensor) -> None:
        self.age_1B = age_B.clone()[None]

    def reorder(self, order: Tensor) -> None:
        if self.age_1B is not None:
            self.age_1B = self.age_1B[:, order]
        if self.state is not None:
            self.state = StreamState(self.state.memory_KCBD.index_select(2, order))

    def nbytes(self) -> int:
        return 0 if self.state is None else self.state.memory_KCBD.numel() * self.state.memory_KCBD.element_size()
