"""The LSTM that the papers compare with, on streams: its state is carried from block to block."""

from dataclasses import dataclass

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.command_line import option
from fb_fairseq.modules.interface import Stack, StepMemory, StreamState
from fb_fairseq.modules.options import CheckedOptions
from fb_fairseq.ops.dropout import dropout


@dataclass(frozen=True)
class LSTMOptions(CheckedOptions):
    """Options of ``LSTM``; the names are the command line's."""

    decoder_layers: int = option(3, "number of layers")
    decoder_embed_dim: int = option(256, "model width")
    dropout: float = option(0.0, "dropout between layers")
    embedding_dropout: float = option(0.0, "dropout of the embedding layer's output")
    output_dropout: float = option(0.0, "dropout of the last layer's output")

    def __post_init__(self):
        self.check_fields()
        self.check_positive("decoder_layers", "decoder_embed_dim")


class LSTM(Stack):
    """Layers of LSTM, each as wide as the model, with dropout between them.

    A stream's state has 2 L vectors: each layer's hidden state, then each layer's cell state.
    """

    def __init__(self, options: LSTMOptions):
        super().__init__()
        self.options = options
        width, layers = options.decoder_embed_dim, options.decoder_layers
        self.lstm = nn.LSTM(width, width, layers, dropout=options.dropout if layers > 1 else 0.0)

    def run_block(
        self, x_TBD: Tensor, state: StreamState | None = None, age_TB: Tensor | None = None
    ) -> tuple[Tensor, StreamState]:
        L = self.options.decoder_layers
        memory_KCBD = StreamState.entering(state, 2 * L, 1, x_TBD).memory_KCBD
        carried = None  # hidden and cell states [L, B, D]
        if memory_KCBD.shape[1]:
            carried = tuple(part.contiguous() for part in memory_KCBD[:, 0].chunk(2))
        if age_TB is None:
            y_TBD, carried = self.lstm(x_TBD, carried)
        else:
            y_TBD, carried = self._run_episodes(x_TBD, carried, age_TB == 0)
        y_TBD = dropout(y_TBD, self.draw(self.options.output_dropout, y_TBD.shape, y_TBD))
        return y_TBD, StreamState(torch.cat(carried)[:, None].detach().to(x_TBD.dtype))

    def _run_episodes(self, x_TBD: Tensor, carried: tuple[Tensor, ...] | None, starts_TB: Tensor):
        """Run a block in pieces between the steps where some episode starts; there its state is set to zero."""
        first = [t for t, start in enumerate(starts_TB.any(1).tolist()) if start and t > 0]
        outputs = []
        for begin, end in zip([0, *first], [*first, len(x_TBD)]):
            if carried is not None:
                carried = tuple(part * ~starts_TB[begin][:, None] for part in carried)
            y_TBD, carried = self.lstm(x_TBD[begin:end], carried)
            outputs.append(y_TBD)
        return torch.cat(outputs), carried

    def new_ring(self, storage: str = "keys-values") -> "LSTMMemory":
        return LSTMMemory()

    def ring_after(self, state: StreamState | None, storage: str = "keys-values") -> "LSTMMemory":
        memory = LSTMMemory()
        memory.state = state
        return memory

    def run_step(self, x_BD: Tensor, memory: "LSTMMemory") -> Tensor:
        y_TBD, memory.state = self.run_block(x_BD[None], memory.state, memory.age_1B)
        memory.position += 1
        if memory.age_1B is not None:
            memory.age_1B = memory.age_1B + 1
        return y_TBD[0]


class LSTMMemory(StepMemory):
    """An LSTM's state while it decodes step by step."""

    def __init__(self):
        self.state: StreamState | None = None
        self.position = 0
        self.age_1B: Tensor | None = None  # steps of each stream's episode so far

    def reset(self, age_B: Tensor) -> None:
        self.age_1B = age_B.clone()[None]

    def reorder(self, order: Tensor) -> None:
        if self.age_1B is not None:
            self.age_1B = self.age_1B[:, order]
        if self.state is not None:
            self.state = StreamState(self.state.memory_KCBD.index_select(2, order))

    def nbytes(self) -> int:
        """Bytes of the hidden and cell states."""
        return 0 if self.state is None else self.state.memory_KCBD.nbytes
