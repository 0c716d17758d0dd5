"""The feedback memory's own parameters: the weights that merge the layers, and shared key and value projections.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import List, Optional

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.affine import affine, norm
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.ops.layers import Projection, at_least_fp32


class FeedbackMemory(nn.Module):
    """How a step's embedding and layer outputs are merged into the memories that later steps attend to.

    ``--memory-composition`` selects one of these:

    - ``weighted``: one memory, a weighted sum with learned weights (v3 §3.3, Eq. 1);
    - ``average``: one memory, the mean;
    - ``layer:<l>``: one memory, the output of layer l alone; layer 0 is the embedding;
    - ``same-and-lower``: one memory per layer, a learned weighted sum of this layer's output and all below;
    - ``previous``: one memory per layer, the output of the layer below: a Transformer.

    The papers compare them in v1 Table 5 and v3 Figures 5 and 8.

    Attributes:
        layer_weights: the logits w of Eq. 1, [L + 1]: the embedding's, then the layers'. For ``same-and-lower``
            [L, L + 1]: row l belongs to the memory of layer l + 1, and only its first l + 2 entries are used. None for
            the other compositions.
        k_proj, v_proj: the key and value projections of all layers, with ``--memory-projections shared``.
        layer_norm: the norm before them; None with post-norm.
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
        """Number of memories of a step, K: 1, or L where each layer has its own."""
        return self.layers if self.composition in ("same-and-lower", "previous") else 1

    def mix(self, device: Optional[torch.device] = None) -> Tensor:
        """The weights [K, L + 1] of the embedding and of each layer's output in each memory; rows sum to 1.

        Args:
            device: of the result; learned weights stay on their own.
        """
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
        before = norm(self.layer_norm) if self.layer_norm is not None else None
        return Projection(norm=before, key=affine(self.k_proj), value=affine(self.v_proj))

    @staticmethod
    def keep_layers(layer_weights: Tensor, kept: List[int]) -> Tensor:
        """The logits for a model pruned to some of the layers.

        Args:
            layer_weights: those of the whole model.
            kept: the layers to keep, counted from 0.
        """
        columns = [0] + [l + 1 for l in kept]
        rows = layer_weights[kept] if layer_weights.dim() == 2 else layer_weights
        return rows[..., columns]
