"""The feedback memory's own parameters: the weights that merge the layers, and shared key and value projections."""

from typing import List, Optional

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.layer import affine
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.ops.layers import Projection, at_least_fp32


class FeedbackMemory(nn.Module):
    """Composition of the memory (v3 §3.3, Eq. 1; compositions to compare: v1 Table 5, v3 Figures 5 and 8).

    Attributes:
        layer_weights: the logits w of Eq. 1, [L + 1]: first the embedding's, then the layers'. For ``same-and-lower``
            [L, L + 1]: row l is what layer l + 1 attends to, and only its first l + 2 entries count.
        k_proj, v_proj, layer_norm: with shared projections, the key and value projections of all layers, and with
            pre-norm the norm before them.
    """

    def __init__(self, options: TransformerOptions):
        super().__init__()
        L, D = options.decoder_layers, options.decoder_embed_dim
        self.layers = L
        self.composition = options.memory_composition
        shape = {"weighted": (L + 1,), "same-and-lower": (L, L + 1)}.get(self.composition)
        self.register_parameter("layer_weights", None if shape is None else nn.Parameter(torch.zeros(shape)))
        self.shared = options.memory_projections == "shared"
        if self.shared:
            width = options.decoder_attention_heads * options.head_dim
            self.k_proj = nn.Linear(D, width)
            self.v_proj = nn.Linear(D, width)
            self.layer_norm = nn.LayerNorm(D) if options.decoder_normalize_before else None

    @property
    def memories(self) -> int:
        """Number of memories K that a step leaves: 1, or L where each layer has its own."""
        return self.layers if self.composition in ("same-and-lower", "previous") else 1

    def mix(self, device: Optional[torch.device] = None) -> Tensor:
        """What each memory takes of the embedding and of each layer, [K, L + 1]; the rows sum to 1."""
        L = self.layers
        if self.composition == "weighted":
            return torch.softmax(at_least_fp32(self.layer_weights), 0)[None]
        if self.composition == "same-and-lower":
            above = torch.ones(L, L + 1, dtype=torch.bool, device=self.layer_weights.device).triu(2)
            return torch.softmax(at_least_fp32(self.layer_weights).masked_fill(above, float("-inf")), 1)
        if self.composition == "average":
            return torch.full((1, L + 1), 1 / (L + 1), device=device)
        if self.composition == "previous":
            return torch.eye(L, L + 1, device=device)
        layer = int(self.composition.partition(":")[2])
        return torch.eye(L + 1, device=device)[layer : layer + 1]

    def projection(self) -> Projection:
        """The shared key and value projections."""
        norm = affine(self.layer_norm) if self.layer_norm is not None else None
        return Projection(norm=norm, key=affine(self.k_proj), value=affine(self.v_proj))

    def keep_layers(self, layer_weights: Tensor, kept: List[int]) -> Tensor:
        """The logits for a model that keeps only these layers, counted from 0 (LayerDrop's pruning)."""
        columns = [0] + [l + 1 for l in kept]
        rows = layer_weights[kept] if layer_weights.dim() == 2 else layer_weights
        return rows[..., columns]
