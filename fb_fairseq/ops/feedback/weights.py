"""A block's weights as its loop needs them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops.attention import Positions
from fb_fairseq.ops.feedback.types import FeedbackWeights, KeyValueSet
from fb_fairseq.ops.layers import Affine, Layer, Projection
from fb_fairseq.ops.span_masks import SpanTerms, span_terms


class ComputeWeights(NamedTuple):
    """The weights as the loop needs them: matrices and positions in the compute type.

    Attributes:
        layers: contiguous.
        projections: as given; their matrices are in ``key_values``.
        key_values: each projection's key and value matrices as one, so that both are one product.
        kv_sets: the I sets of keys and values.
        mix_KA: in the type of representations.
        positions: row S - d for distance d, so that the newest slot is last.
        spans: each layer's adaptive spans, also newest last; None where all heads reach S steps.
    """

    layers: list[Layer]
    projections: Sequence[Projection]
    key_values: list[Affine]
    kv_sets: list[KeyValueSet]
    mix_KA: Tensor
    positions: Positions
    spans: list[SpanTerms | None]


def contiguous(tree: Any) -> Any:
    """Nested tuples and lists with their tensors contiguous."""
    return pytree.tree_map_only(Tensor, Tensor.contiguous, tree)


def compute_weights(weights: FeedbackWeights, span: int, dtype: torch.dtype, kept: torch.dtype) -> ComputeWeights:
    """Convert weights to the types in which they are used. Norms keep the type of the parameters.

    Args:
        span: S.
        dtype: of the matrices.
        kept: the type of representations, and of the mix.
    """

    def cast(x: Any) -> Any:
        if not isinstance(x, Affine) or x.weight.dim() == 1:
            return x
        return Affine(*(None if part is None else part.to(dtype) for part in x))

    def joined(projection: Projection) -> Affine:
        key, value = projection.key, projection.value
        bias = None if key.bias is None else torch.cat([key.bias, value.bias])
        return cast(Affine(torch.cat([key.weight, value.weight]), bias))

    layers = pytree.tree_map(cast, list(weights.layers), is_leaf=lambda x: isinstance(x, Affine))
    return ComputeWeights(
        layers=contiguous(layers),
        projections=weights.projections,
        key_values=[joined(projection) for projection in weights.projections],
        kv_sets=weights.kv_sets,
        mix_KA=weights.mix_KA.to(kept),
        positions=pytree.tree_map_only(Tensor, lambda x: x.to(dtype), weights.positions.of_window(span)),
        spans=span_terms_of(weights.layers, span),
    )


def span_terms_of(layers: Sequence[Layer], span: int) -> list[SpanTerms | None]:
    """The layers' adaptive spans within S steps, the newest last; None where all heads reach S steps."""
    masks = (layer.span_mask_HS for layer in layers)
    return [None if mask_HS is None else span_terms(mask_HS[:, :span].flip(1)) for mask_HS in masks]
