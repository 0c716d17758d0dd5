"""The parts of a layer that act on each step alone: the same for a step [B, D] and a block [T, B, D]."""

from typing import Any, NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops.dropout import Dropout, dropout

ACTIVATIONS = {
    "relu": F.relu,
    "relu_squared": lambda x: F.relu(x).pow(2),
    "gelu": F.gelu,
    "gelu_accurate": lambda x: F.gelu(x, approximate="tanh"),
    "tanh": torch.tanh,
    "linear": lambda x: x,
}


LAYER_NORM_EPS = 1e-5  # torch's default, which fairseq's layers use too


class Affine(NamedTuple):
    """Weight [out, in] and bias [out] of a linear map, or scale and shift [D] of a layer norm (epsilon
    ``LAYER_NORM_EPS``).
    """

    weight: Tensor
    bias: Tensor | None


class CalledModule(NamedTuple):
    """A module to call instead of multiplying by a matrix: an adapter, a quantised layer, one with hooks.

    Only ``linear`` and ``layer_norm`` know it, and so only the reference loop.
    """

    module: nn.Module


def has_modules(weights: Any) -> bool:
    """Whether there is a module to call among weights."""
    leaves = pytree.tree_leaves(weights, is_leaf=lambda x: isinstance(x, CalledModule))
    return any(isinstance(x, CalledModule) for x in leaves)


class CrossAttention(NamedTuple):
    """The weights of a layer's attention to the encoder, without its key and value projections."""

    query: Affine
    out: Affine
    attn_norm: Affine


class Layer(NamedTuple):
    """The weights of one layer, without its key and value projections.

    Attributes:
        query, out: linear maps of the attention, [X, D] and [D, X].
        attn_norm, ffn_norm: layer norms of the two sublayers.
        fc1, fc2: linear maps of the feed-forward sublayer, [F, D] and [D, F].
        span_mask_HS: the heads' adaptive spans by distance (column d - 1 for distance d); None: all heads reach S steps
            back. Its width is the layer's reach: larger distances are masked out for every head.
        cross: attention to an encoder; None in language models.
    """

    query: Affine
    out: Affine
    attn_norm: Affine
    fc1: Affine
    fc2: Affine
    ffn_norm: Affine
    span_mask_HS: Tensor | None = None
    cross: CrossAttention | None = None


class Projection(NamedTuple):
    """Key and value projections of a memory. ``norm`` is None where the memory is not normalised first (post-norm)."""

    norm: Affine | None
    key: Affine
    value: Affine


def linear(x: Tensor, affine: Affine | CalledModule) -> Tensor:
    """``x Wᵀ + b``."""
    if isinstance(affine, CalledModule):
        if x.numel():
            return affine.module(x)
        row = affine.module(x.new_zeros(1, x.shape[-1]))  # quantised layers look for the largest entry
        return row.new_zeros(*x.shape[:-1], row.shape[-1])
    return F.linear(x, affine.weight, affine.bias)


def layer_norm(x: Tensor, affine: Affine | CalledModule | None) -> Tensor:
    """Layer norm over the last dimension; ``x`` itself without a norm."""
    if isinstance(affine, CalledModule):
        return affine.module(x)
    return x if affine is None else F.layer_norm(x, x.shape[-1:], affine.weight, affine.bias, LAYER_NORM_EPS)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Split [..., X] into heads [..., H, E]."""
    return x.unflatten(-1, (heads, -1))


def project_query(x: Tensor, layer: Layer | CrossAttention, heads: int, normalize_before: bool) -> Tensor:
    """Project [..., D] to queries [..., H, E]; with pre-norm after the attention's norm."""
    return split_heads(linear(layer_norm(x, layer.attn_norm if normalize_before else None), layer.query), heads)


def project_memory(memory: Tensor, projection: Projection, heads: int):
    """Project memories [..., D] to keys and values [..., H, E]."""
    normed = layer_norm(memory, projection.norm)
    return split_heads(linear(normed, projection.key), heads), split_heads(linear(normed, projection.value), heads)


def attention_residual(
    x: Tensor, attended: Tensor, layer: Layer | CrossAttention, normalize_before: bool, residual: Dropout | None = None
) -> Tensor:
    """Add an attention's result [..., H, E], projected, to its input x [..., D]; with post-norm, normalise the sum."""
    x = x + dropout(linear(attended.flatten(-2), layer.out), residual)
    return x if normalize_before else layer_norm(x, layer.attn_norm)


def feed_forward(
    x: Tensor,
    layer: Layer,
    activation: str,
    normalize_before: bool,
    *,
    hidden: Dropout | None = None,
    residual: Dropout | None = None,
) -> Tensor:
    """The feed-forward sublayer with its residual connection, [..., D] to [..., D].

    Args:
        activation: a key of ``ACTIVATIONS``.
        normalize_before: pre-norm; else post-norm.
        hidden, residual: dropout of the hidden vector, and of what is added to the input.
    """
    h = ACTIVATIONS[activation](linear(layer_norm(x, layer.ffn_norm if normalize_before else None), layer.fc1))
    x = x + dropout(linear(dropout(h, hidden), layer.fc2), residual)
    return x if normalize_before else layer_norm(x, layer.ffn_norm)
