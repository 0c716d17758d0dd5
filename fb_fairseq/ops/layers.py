"""The parts of a layer that see one step at a time: they serve a step [B, D] and a block [T, B, D] alike.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import NamedTuple, Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS = {
    "relu": F.relu,
    "relu_squared": lambda x: F.relu(x).pow(2),
    "gelu": F.gelu,
    "gelu_accurate": lambda x: F.gelu(x, approximate="tanh"),
    "tanh": torch.tanh,
    "linear": lambda x: x,
}


class Affine(NamedTuple):
    """Weight [out, in] and bias [out] of a linear map, or scale and shift [D] of a layer norm."""

    weight: Tensor
    bias: Optional[Tensor]


class CrossAttention(NamedTuple):
    """The weights of a layer's attention to the encoder, without its key and value projections."""

    query: Affine
    out: Affine
    attn_norm: Affine


class Layer(NamedTuple):
    """The weights of one layer, without its key and value projections.

    span_mask_HS: the heads' adaptive spans by distance (column d - 1 for distance d); None: all reach S steps back.
        Its width is the layer's reach, the distances beyond being masked out for every head.
    cross: attention to an encoder; None in language models.
    """

    query: Affine
    out: Affine
    attn_norm: Affine
    fc1: Affine
    fc2: Affine
    ffn_norm: Affine
    span_mask_HS: Optional[Tensor] = None
    cross: Optional[CrossAttention] = None


class Projection(NamedTuple):
    """From a memory to keys and values. ``norm`` is None where the memory is not normalised (post-norm)."""

    norm: Optional[Affine]
    key: Affine
    value: Affine


class Dropout(NamedTuple):
    """A dropout mask drawn beforehand: ``keep`` (bool, the shape of what it masks), and the scale of what is kept."""

    keep: Tensor
    scale: float

    def at(self, *index: int) -> "Dropout":
        """The mask of one layer, or of one layer and step."""
        return Dropout(self.keep[index], self.scale)


def draw_dropout(p: float, shape, like: Tensor) -> Optional[Dropout]:
    """A mask of that shape on ``like``'s device, each entry kept with probability 1 - p; None where p is 0."""
    if p == 0:
        return None
    keep = torch.rand(shape, device=like.device) >= p
    return Dropout(keep, 1 / (1 - p))


def dropout(x: Tensor, mask: Optional[Dropout]) -> Tensor:
    return x if mask is None else x * mask.keep * mask.scale


def at_least_fp32(x: Tensor) -> Tensor:
    """In fp32 where it is fp16 or bf16: softmax runs in fp32 whatever the autocast type."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def linear(x: Tensor, affine: Affine) -> Tensor:
    return F.linear(x, affine.weight, affine.bias)


def layer_norm(x: Tensor, affine: Optional[Affine]) -> Tensor:
    return x if affine is None else F.layer_norm(x, x.shape[-1:], affine.weight, affine.bias)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[..., H * E] to [..., H, E]."""
    return x.unflatten(-1, (heads, -1))


def project_query(x: Tensor, layer: Union[Layer, CrossAttention], heads: int, normalize_before: bool) -> Tensor:
    """[..., D] to queries [..., H, E]."""
    return split_heads(linear(layer_norm(x, layer.attn_norm if normalize_before else None), layer.query), heads)


def project_memory(memory: Tensor, projection: Projection, heads: int):
    """Memory [..., D] to keys and values [..., H, E]."""
    normed = layer_norm(memory, projection.norm)
    return split_heads(linear(normed, projection.key), heads), split_heads(linear(normed, projection.value), heads)


def attention_residual(
    x: Tensor,
    attended: Tensor,
    layer: Union[Layer, CrossAttention],
    normalize_before: bool,
    residual: Optional[Dropout] = None,
) -> Tensor:
    """Add the attention's result [..., H, E], projected, to x [..., D]."""
    x = x + dropout(linear(attended.flatten(-2), layer.out), residual)
    return x if normalize_before else layer_norm(x, layer.attn_norm)


def feed_forward(
    x: Tensor,
    layer: Layer,
    activation: str,
    normalize_before: bool,
    hidden: Optional[Dropout] = None,
    residual: Optional[Dropout] = None,
) -> Tensor:
    """The feed-forward sublayer with its residual connection, [..., D] to [..., D]."""
    h = ACTIVATIONS[activation](linear(layer_norm(x, layer.ffn_norm if normalize_before else None), layer.fc1))
    x = x + dropout(linear(dropout(h, hidden), layer.fc2), residual)
    return x if normalize_before else layer_norm(x, layer.ffn_norm)
