"""Recurrent layers in plain PyTorch: the sLSTM, and a stack of such cells with feed-forward sublayers.

Shapes: B sequences, L steps, D features, H heads of width E.
"""

from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.papers.state_tracking.bodies import Body


class SLSTM(nn.Module):
    """The sLSTM layer of xLSTM (arXiv 2405.04517, section 2.2): exponential input gates, a normaliser state, and heads
    that see their own last output only.

    Args:
        width: of inputs and outputs, D.
        heads: H, which divides the width.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width // heads)
        self.inputs = nn.Linear(width, 4 * width)
        self.out = nn.Linear(width, width)
        self.recurrent = nn.Parameter(torch.randn(heads, width // heads, 4 * width // heads) * (heads / width) ** 0.5)
        nn.init.constant_(self.inputs.bias.data.view(heads, -1, 4)[..., 2], 3.0)  # forget gates begin open

    def forward(self, x_BLD: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Outputs [B, L, D], and the state after them: cell, normaliser, stabiliser and output [B, H, E].

        ``state``: that after earlier steps; None: zeros.
        """
        B, L, D = x_BLD.shape
        gates = self.inputs(x_BLD).view(B, L, self.heads, -1, 4)
        outputs = []
        if state is None:
            state = (x_BLD.new_zeros(B, self.heads, D // self.heads),) * 4
        cell, normaliser, stabiliser, output = state
        for l in range(L):
            seen = torch.einsum("bhe,hef->bhf", output, self.recurrent).unflatten(-1, (-1, 4))
            candidate, input_gate, forget, output_gate = (gates[:, l] + seen).unbind(-1)
            kept = F.logsigmoid(forget) + stabiliser
            stabiliser = torch.maximum(kept, input_gate)  # both exponentials are at most 1
            scale = (input_gate - stabiliser).exp()
            share = (kept - stabiliser).exp()
            cell = share * cell + scale * candidate.tanh()
            normaliser = share * normaliser + scale
            output = output_gate.sigmoid() * cell / normaliser.clamp(min=1e-6)
            outputs.append(output)
        return self.out(self.norm(torch.stack(outputs, 1)).flatten(2)), (cell, normaliser, stabiliser, output)


class RecurrentBody(Body):
    """Layers of a recurrent cell and a feed-forward sublayer, pre-norm, with residual connections.

    Args:
        width: of inputs and outputs, D.
        cells: one for each layer: from inputs [B, L, D] and a state, or None, to outputs and the next state.
        inner: width of the feed-forward sublayers.
    """

    def __init__(self, width: int, inner: int, cells: list[nn.Module]):
        super().__init__()
        self.width = width
        self.cells = nn.ModuleList(cells)
        self.final_norm = nn.LayerNorm(width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in cells)
        self.feed_forward = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
            for _ in cells
        )

    def run(self, x_BLD: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """Run the layers from their states on. Returns features [B, L, D], and the states after them."""
        after = []
        for cell, norm, feed_forward, state in zip(self.cells, self.norms, self.feed_forward, states):
            y_BLD, state = cell(norm(x_BLD), state)
            x_BLD = x_BLD + y_BLD
            x_BLD = x_BLD + feed_forward(x_BLD)
            after.append(state)
        return self.final_norm(x_BLD), after

    def start(self) -> list[Any]:
        return [None] * len(self.cells)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """See ``Body.forward``."""
        return self.run(x_BLD, self.start())[0]

    def step(self, x_BD: Tensor, state: list[Any]) -> tuple[Tensor, list[Any]]:
        y_BLD, state = self.run(x_BD[:, None], state)
        return y_BLD[:, 0], state
