"""A layer's parameters, under fairseq's names. ``fb_fairseq.ops`` does the arithmetic.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``; C counts the encoder's positions.
"""

import math

import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.affine import affine, norm, projection, warn_of_hooks
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.spans import AdaptiveSpan
from fb_fairseq.ops.feedback.types import EncoderContext
from fb_fairseq.ops.layers import CrossAttention, Layer, Projection, project_memory
from fb_fairseq.ops.products import at_least_fp32


class SelfAttention(nn.Module):
    """Projections of one layer's attention, and its adaptive spans. ``own_keys``: whether the layer has key and value
    projections of its own.
    """

    def __init__(self, options: TransformerOptions, own_keys: bool, bias: bool = True):
        super().__init__()
        D = options.decoder_embed_dim
        width = options.decoder_attention_heads * options.head_dim
        if own_keys:
            self.k_proj = nn.Linear(D, options.context_heads * options.head_dim, bias)
            self.v_proj = nn.Linear(D, options.context_heads * options.head_dim, bias)
        self.q_proj = nn.Linear(D, width, bias)
        self.out_proj = nn.Linear(width, D, bias)
        self.adaptive_span = AdaptiveSpan(options) if options.adaptive_span else None


class AttentionLayer(nn.Module):
    """Base class of our layers: self-attention and its norm. ``own_keys``: whether the layer has key and value
    projections of its own.
    """

    def __init__(self, options: TransformerOptions, own_keys: bool, bias: bool = True):
        super().__init__()
        self.normalize_before = options.decoder_normalize_before
        self.self_attn = SelfAttention(options, own_keys, bias)
        self.self_attn_layer_norm = nn.LayerNorm(options.decoder_embed_dim)


class TransformerLayer(AttentionLayer):
    """Self-attention and feed-forward sublayer.

    Initialised as published: torch's defaults; with pre-norm, the matrices that feed the residual connections are
    divided by sqrt(2 L).
    """

    def __init__(self, options: TransformerOptions, own_keys: bool):
        super().__init__(options, own_keys)
        D = options.decoder_embed_dim
        self.fc1 = nn.Linear(D, options.decoder_ffn_embed_dim)
        self.fc2 = nn.Linear(options.decoder_ffn_embed_dim, D)
        self.final_layer_norm = nn.LayerNorm(D)
        if self.normalize_before:
            for module in (self.self_attn.out_proj, self.fc2):
                module.weight.data.div_(math.sqrt(2 * options.decoder_layers))


def transformer_weights(layer: nn.Module, reach: int) -> Layer:
    """The weights of a layer with fairseq's parameter names, ours or fairseq's own, without key and value projections.

    ``reach``: how many steps back it attends, for adaptive spans.
    """
    warn_of_hooks(layer, layer.self_attn, getattr(layer, "encoder_attn", None))
    return Layer(
        query=affine(layer.self_attn.q_proj),
        out=affine(layer.self_attn.out_proj),
        attn_norm=norm(layer.self_attn_layer_norm),
        fc1=affine(layer.fc1),
        fc2=affine(layer.fc2),
        ffn_norm=norm(layer.final_layer_norm),
        span_mask_HS=span_mask(layer, reach),
        cross=cross_attention(layer),
    )


def span_mask(layer: nn.Module, reach: int) -> Tensor | None:
    """The adaptive spans [H, reach] of a layer's heads by distance; None: all reach S steps back."""
    span = getattr(layer.self_attn, "adaptive_span", None)  # fairseq's layers have none
    return None if span is None else span.mask(reach)


def attention_projection(layer: nn.Module) -> Projection:
    """Key and value projections of a layer with fairseq's parameter names; with pre-norm its norm comes before them."""
    before = norm(layer.self_attn_layer_norm) if layer.normalize_before else None
    return projection(before, layer.self_attn.k_proj, layer.self_attn.v_proj)


class EncoderAttention(nn.Module):
    """The projections of a layer's attention to the encoder.

    Args:
        width: of the decoder.
        encoder_width: of the encoder's output.
        heads: of the attention, which divide the decoder's width.
    """

    def __init__(self, width: int, encoder_width: int, heads: int):
        super().__init__()
        self.num_heads = heads
        self.k_proj = nn.Linear(encoder_width, width)
        self.v_proj = nn.Linear(encoder_width, width)
        self.q_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)


class CrossAttentionLayer(TransformerLayer):
    """A decoder layer: attention to the memory, attention to the encoder, and a feed-forward sublayer.
    ``encoder_width``: width of the encoder's output.
    """

    def __init__(self, options: TransformerOptions, own_keys: bool, encoder_width: int):
        super().__init__(options, own_keys)
        width = options.decoder_embed_dim
        self.encoder_attn = EncoderAttention(width, encoder_width, options.decoder_attention_heads)
        self.encoder_attn_layer_norm = nn.LayerNorm(width)


def cross_attention(layer: nn.Module) -> CrossAttention | None:
    """The weights of a layer's attention to the encoder; None if it has no such attention."""
    cross = getattr(layer, "encoder_attn", None)
    if cross is None:
        return None
    return CrossAttention(affine(cross.q_proj), affine(cross.out_proj), norm(layer.encoder_attn_layer_norm))


def encoder_context(layer: nn.Module, out_CBD: Tensor, padding_BC: Tensor | None) -> EncoderContext | None:
    """A layer's keys and values of an encoder's output; None if the layer does not attend to it.

    They are at least fp32, because each position's gradient is a sum over steps.

    ``padding_BC``: True where the source is padded.
    """
    cross = getattr(layer, "encoder_attn", None)
    if cross is None:
        return None
    keys, values = project_memory(out_CBD, projection(None, cross.k_proj, cross.v_proj), cross.num_heads)
    return EncoderContext(at_least_fp32(keys), at_least_fp32(values), padding_BC)
