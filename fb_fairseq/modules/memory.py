"""The feedback memory's compositions, and its own parameters: the weights that merge the layers, and shared key and
value projections.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.affine import norm, projection
from fb_fairseq.ops.layers import Projection
from fb_fairseq.ops.products import at_least_fp32


class Composition(NamedTuple):
    """A way to merge a step's embedding and layer outputs into the memories that later steps attend to.

    Each memory is a weighted sum of some of these L + 1 representations (v3 §3.3, Eq. 1).

    Attributes:
        summary: what it is, for help and docs.
        uses: called with L, the argument's number and a device; gives 1 for each representation that a memory is made
            of and else 0, the embedding first: [L + 1], one memory for all layers, or [L, L + 1], one for each.
        learned: whether the weights of those are learned; if not, they are equal.
        takes: what the argument stands for, as in ``layer:<l>``; empty: there is none.
    """

    summary: str
    uses: Callable[[int, int, Any], Tensor]
    learned: bool = False
    takes: str = ""


# The values of --memory-composition. Options, help, docs and recipes read this table. The papers compare these in v1
# Table 5 and v3 Figures 5 and 8.
COMPOSITIONS = {
    "weighted": Composition(
        "all layers, with learned weights", lambda L, _, device: torch.ones(L + 1, device=device), learned=True
    ),
    "average": Composition("all layers, on average", lambda L, _, device: torch.ones(L + 1, device=device)),
    "layer": Composition("one layer", lambda L, l, device: torch.eye(L + 1, device=device)[l], takes="l"),
    "same-and-lower": Composition(
        "for each layer, itself and all below, with learned weights",
        lambda L, _, device: torch.ones(L, L + 1, device=device).tril(1),
        learned=True,
    ),
    # arXiv 2604.21215
    "same": Composition(
        "for each layer, itself (the Recurrent Transformer)",
        lambda L, _, device: torch.eye(L, L + 1, device=device).roll(1, 1),
    ),
    "previous": Composition(
        "for each layer, the layer below (a Transformer)", lambda L, _, device: torch.eye(L, L + 1, device=device)
    ),
}


def written(name: str) -> str:
    """A composition as one writes it: ``layer:<l>``."""
    takes = COMPOSITIONS[name].takes
    return f"{name}:<{takes}>" if takes else name


def composition(text: str, layers: int) -> tuple[Composition, int]:
    """The composition of a value of ``--memory-composition``, and the number behind its colon (0 if there is none).

    Args:
        text: the value.
        layers: L.

    Raises:
        ValueError: there is none; the message says why.
    """
    name, colon, argument = text.partition(":")
    found = COMPOSITIONS.get(name)
    if found is None or (colon and not found.takes):
        raise ValueError(f"unknown; choose from {', '.join(map(written, COMPOSITIONS))}")
    if not found.takes:
        return found, 0
    if not re.fullmatch("[0-9]+", argument) or int(argument) > layers:
        raise ValueError(f"give {name}:0 (the embedding) to {name}:{layers} (the top layer)")
    return found, int(argument)


class FeedbackMemory(nn.Module):
    """A step's memories: what they are made of, and their projections.

    Args:
        options: ``TransformerOptions``; ``--memory-composition`` selects the composition.

    Attributes:
        layers: their number, L.
        shared: whether all layers share one key and one value projection, which this module has then.
        composition, argument: what the memories are made of.
        memories: number of memories of a step, K: 1, or L where each layer has its own.
        layer_weights: the logits w of Eq. 1, [L + 1]: the embedding's, then the layers'. For ``same-and-lower``
            [L, L + 1]: row l belongs to the memory of layer l + 1. None for compositions that learn none.
        k_proj, v_proj: the key and value projections of all layers, with ``--memory-projections shared``.
        layer_norm: the norm before them; None with post-norm.
    """

    def __init__(self, options: Any):
        super().__init__()
        D = options.decoder_embed_dim
        self.layers = options.decoder_layers
        self.composition, self.argument = composition(options.memory_composition, self.layers)
        uses = self.composition.uses(self.layers, self.argument, None)
        self.memories = uses.numel() // (self.layers + 1)
        learned = nn.Parameter(torch.zeros(uses.shape)) if self.composition.learned else None
        self.register_parameter("layer_weights", learned)
        self.shared = options.memory_projections == "shared"
        if self.shared:
            width = options.decoder_attention_heads * options.head_dim
            self.k_proj = nn.Linear(D, width)
            self.v_proj = nn.Linear(D, width)
            self.layer_norm = nn.LayerNorm(D) if options.decoder_normalize_before else None

    def mix(self, device: torch.device | None = None) -> Tensor:
        """The weights [K, L + 1] of the embedding and of each layer's output in each memory; rows sum to 1. ``device``:
        of the result; learned weights stay on their own.
        """
        logits = self.layer_weights
        uses = self.composition.uses(self.layers, self.argument, device if logits is None else logits.device)
        if logits is None:
            weights = uses / uses.sum(-1, keepdim=True)
        else:
            weights = torch.softmax(at_least_fp32(logits).masked_fill(uses == 0, -torch.inf), -1)
        return weights.view(-1, self.layers + 1)

    def projection(self) -> Projection:
        """The shared key and value projections."""
        before = norm(self.layer_norm) if self.layer_norm is not None else None
        return projection(before, self.k_proj, self.v_proj)

    @staticmethod
    def keep_layers(layer_weights: Tensor, kept: list[int]) -> Tensor:
        """The logits for a model pruned to some of the layers. ``layer_weights``: those of the whole model. ``kept``:
        the layers to keep, counted from 0.
        """
        columns = [0] + [l + 1 for l in kept]
        rows = layer_weights[kept] if layer_weights.dim() == 2 else layer_weights
        return rows[..., columns]
