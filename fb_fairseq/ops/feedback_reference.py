"""The Feedback Transformer's step loop, written to be checked against the paper by eye.

Fan et al. (arXiv 2002.09402) v3 §3.3, Eq. 1. Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.attention import Positions, step_attention
from fb_fairseq.ops.layers import (
    Dropout,
    Layer,
    Projection,
    attention_residual,
    feed_forward,
    project_memory,
    project_query,
)


class FeedbackWeights(NamedTuple):
    """All weights of the loop.

    mix_KN: memory k of a step is ``Σ_n mix[k, n] x^n``, with x^0 the embedding and x^n the output of layer n.
    projections: one for all layers, or one a layer.
    """

    layers: Sequence[Layer]
    projections: Sequence[Projection]
    mix_KN: Tensor
    positions: Positions


class FeedbackOptions(NamedTuple):
    heads: int
    span: int
    activation: str
    normalize_before: bool


class FeedbackDropouts(NamedTuple):
    """Masks drawn before the loop; None where nothing is dropped."""

    attention_LTBHS: Optional[Dropout] = None
    hidden_LTBF: Optional[Dropout] = None
    attention_residual_LTBD: Optional[Dropout] = None
    ffn_residual_LTBD: Optional[Dropout] = None

    def at(self, layer: int, step: int) -> "FeedbackDropouts":
        return FeedbackDropouts(*(mask and mask.at(layer, step) for mask in self))


def feedback_block(
    x_TBD: Tensor,
    memory_KCBD: Tensor,
    weights: FeedbackWeights,
    options: FeedbackOptions,
    dropouts: FeedbackDropouts = FeedbackDropouts(),
    active: Optional[Sequence[bool]] = None,
) -> Tuple[Tensor, Tensor]:
    """Run a block of T steps, one after the other.

    Args:
        x_TBD: embeddings, x^0.
        memory_KCBD: memories of the C <= S steps before the block, oldest first.
        active: which layers run (LayerDrop); a layer that does not hands its input on.

    Returns:
        The top layer's outputs x^L [T, B, D], and the memories of the block [K, T, B, D].
    """
    L, K, P = len(weights.layers), weights.mix_KN.shape[0], len(weights.projections)
    active = active or [True] * L
    sets = max(K, P)  # of keys and values: one for all layers, or one a layer

    def project(memory, i):
        return project_memory(memory[i if K > 1 else 0], weights.projections[i if P > 1 else 0], options.heads)

    contexts = [project(memory_KCBD, i) for i in range(sets)]
    first_queries = project_query(x_TBD, weights.layers[0], options.heads, options.normalize_before)
    outputs: List[Tensor] = []
    memories: List[Tensor] = []
    for t in range(x_TBD.shape[0]):
        x_BD = x_TBD[t]
        representations = [x_BD]
        for l, layer in enumerate(weights.layers):
            if active[l]:
                masks = dropouts.at(l, t)
                keys, values = contexts[l if sets > 1 else 0]
                query = (
                    first_queries[t]
                    if l == 0
                    else project_query(x_BD, layer, options.heads, options.normalize_before)
                )
                attended = step_attention(query, keys, values, weights.positions, masks.attention_LTBHS)
                x_BD = attention_residual(
                    x_BD, attended, layer, options.normalize_before, masks.attention_residual_LTBD
                )
                x_BD = feed_forward(
                    x_BD,
                    layer,
                    options.activation,
                    options.normalize_before,
                    masks.hidden_LTBF,
                    masks.ffn_residual_LTBD,
                )
            representations.append(x_BD)
        memory_KBD = torch.einsum("kn,nbd->kbd", weights.mix_KN.to(x_BD.dtype), torch.stack(representations))
        contexts = [
            tuple(torch.cat([old, new[None]])[-options.span :] for old, new in zip(contexts[i], project(memory_KBD, i)))
            for i in range(sets)
        ]
        outputs.append(x_BD)
        memories.append(memory_KBD)
    return torch.stack(outputs), torch.stack(memories, 1)
