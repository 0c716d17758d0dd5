"""The feedback memory's compositions, and its own parameters: the weights that merge the layers, and shared key and
value projections."""

from typing import Any

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.affine import affine, norm
from fb_fairseq.ops.layers import Projection, at_least_fp32


class Composition:
    """A way to merge a step's embedding and layer outputs into the memories that later steps attend to.

    Each memory is a sum of these L + 1 representations, with the weights that ``mix`` returns (v3 §3.3, Eq. 1).

    ``layers``: L. ``argument``: behind the name and a colon, as in ``layer:2``; else empty."""

    summary: str  # what it is, for help and docs
    per_layer = False  # whether each layer has a memory of its own; else there is one for all
    takes = ""  # what the argument stands for, as in ``layer:<l>``; empty: there is none

    def __init__(self, layers: int, argument: str = ""):
        self.layers, self.argument = layers, argument

    @property
    def memories(self) -> int:
        """Number of memories of a step, K."""
        return self.layers if self.per_layer else 1

    def problem(self) -> str | None:
        """The fault of the argument; None: there is none."""
        return None

    def logits_shape(self) -> tuple[int, ...] | None:
        """The shape of the weights that it learns, before their softmax; None: it learns none."""
        return None

    def mix(self, logits: Tensor | None, device: torch.device | None) -> Tensor:
        """The weights [K, L + 1] of the embedding and of each layer's output in each memory; rows sum to 1."""
        raise NotImplementedError


class Weighted(Composition):
    """A weighted sum with learned weights (v3 §3.3, Eq. 1)."""

    summary = "all layers, with learned weights"

    def logits_shape(self) -> tuple[int, ...]:
        return (self.layers + 1,)

    def mix(self, logits: Tensor | None, device: torch.device | None) -> Tensor:
        return torch.softmax(at_least_fp32(logits), 0)[None]


class Average(Composition):
    """The mean."""

    summary = "all layers, on average"

    def mix(self, logits: Tensor | None, device: torch.device | None) -> Tensor:
        return torch.full((1, self.layers + 1), 1 / (self.layers + 1), device=device)


class OneLayer(Composition):
    """The output of layer l alone; layer 0 is the embedding."""

    summary = "one layer"
    takes = "l"

    def problem(self) -> str | None:
        good = self.argument.isdecimal() and self.argument.isascii() and int(self.argument) <= self.layers
        return None if good else f"give layer:0 (the embedding) to layer:{self.layers} (the top layer)"

    def mix(self, logits: Tensor | None, device: torch.device | None) -> Tensor:
        layer = int(self.argument)
        return torch.eye(self.layers + 1, device=device)[layer : layer + 1]


class SameAndLower(Composition):
    """For each layer a learned weighted sum of this layer's output and all below: only the first l + 2 of row l."""

    summary = "for each layer, itself and all below, with learned weights"
    per_layer = True

    def logits_shape(self) -> tuple[int, ...]:
        return (self.layers, self.layers + 1)

    def mix(self, logits: Tensor | None, device: torch.device | None) -> Tensor:
        above = torch.ones(self.layers, self.layers + 1, dtype=torch.bool, device=logits.device).triu(2)
        return torch.softmax(at_least_fp32(logits).masked_fill(above, float("-inf")), 1)


class Same(Composition):
    """For each layer its own output: the Recurrent Transformer (arXiv 2604.21215)."""

    summary = "for each layer, itself (the Recurrent Transformer)"
    per_layer = True

    def mix(self, logits: Tensor | None, device: torch.device | None) -> Tensor:
        return torch.eye(self.layers, self.layers + 1, device=device).roll(1, 1)


class Previous(Composition):
    """For each layer the output of the layer below: a Transformer."""

    summary = "for each layer, the layer below (a Transformer)"
    per_layer = True

    def mix(self, logits: Tensor | None, device: torch.device | None) -> Tensor:
        return torch.eye(self.layers, self.layers + 1, device=device)


# The values of --memory-composition. Options, help, docs and recipes read this table. The papers compare these in v1
# Table 5 and v3 Figures 5 and 8.
COMPOSITIONS: dict[str, type[Composition]] = {
    "weighted": Weighted,
    "average": Average,
    "layer": OneLayer,
    "same-and-lower": SameAndLower,
    "same": Same,
    "previous": Previous,
}


def written(name: str) -> str:
    """A composition as one writes it: ``layer:<l>``."""
    takes = COMPOSITIONS[name].takes
    return f"{name}:<{takes}>" if takes else name


def composition(text: str, layers: int) -> Composition:
    """The composition of a value of ``--memory-composition``.

    Raises:
        ValueError: there is none; the message says why."""
    name, colon, argument = text.partition(":")
    kind = COMPOSITIONS.get(name)
    if kind is None or (bool(colon) and not kind.takes):
        raise ValueError(f"unknown; choose from {', '.join(map(written, COMPOSITIONS))}")
    found = kind(layers, argument)
    problem = found.problem()
    if problem is not None:
        raise ValueError(problem)
    return found


class FeedbackMemory(nn.Module):
    """A step's memories: what they are made of, and their projections.

    Args:
        options: ``TransformerOptions``; ``--memory-composition`` selects the composition.

    Attributes:
        composition: what the memories are made of.
        layer_weights: the logits w of Eq. 1, [L + 1]: the embedding's, then the layers'. For ``same-and-lower``
            [L, L + 1]: row l belongs to the memory of layer l + 1. None for compositions that learn none.
        k_proj, v_proj: the key and value projections of all layers, with ``--memory-projections shared``.
        layer_norm: the norm before them; None with post-norm."""

    def __init__(self, options: Any):
        super().__init__()
        D = options.decoder_embed_dim
        self.composition = composition(options.memory_composition, options.decoder_layers)
        shape = self.composition.logits_shape()
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
        return self.composition.memories

    def mix(self, device: torch.device | None = None) -> Tensor:
        """The weights [K, L + 1] of the embedding and of each layer's output in each memory; rows sum to 1. ``device``:
        of the result; learned weights stay on their own."""
        return self.composition.mix(self.layer_weights, device)

    def projection(self) -> Projection:
        """The shared key and value projections."""
        before = norm(self.layer_norm) if self.layer_norm is not None else None
        return Projection(norm=before, key=affine(self.k_proj), value=affine(self.v_proj))

    @staticmethod
    def keep_layers(layer_weights: Tensor, kept: list[int]) -> Tensor:
        """The logits for a model pruned to some of the layers. ``layer_weights``: those of the whole model. ``kept``:
        the layers to keep, counted from 0."""
        columns = [0] + [l + 1 for l in kept]
        rows = layer_weights[kept] if layer_weights.dim() == 2 else layer_weights
        return rows[..., columns]
