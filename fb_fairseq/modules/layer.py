"""A layer's parameters, under fairseq's names."""

import math

import torch.nn as nn

from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.span import AdaptiveSpan
from fb_fairseq.ops.layers import Affine, Layer, Projection


def affine(module: nn.Module) -> Affine:
    """The weight and bias of an ``nn.Linear`` or ``nn.LayerNorm``."""
    return Affine(module.weight, module.bias)


class SelfAttention(nn.Module):
    """Projections of one layer's attention; keys and values only where each layer has its own."""

    def __init__(self, options: TransformerOptions, own_keys: bool, bias: bool = True):
        super().__init__()
        D, width = options.decoder_embed_dim, options.decoder_attention_heads * options.head_dim
        if own_keys:
            self.k_proj = nn.Linear(D, options.context_heads * options.head_dim, bias)
            self.v_proj = nn.Linear(D, options.context_heads * options.head_dim, bias)
        self.q_proj = nn.Linear(D, width, bias)
        self.out_proj = nn.Linear(width, D, bias)
        self.adaptive_span = AdaptiveSpan(options) if options.adaptive_span else None


class TransformerLayer(nn.Module):
    """Self-attention and feed-forward sublayer. ``ops`` does the arithmetic.

    Initialised as published: torch's defaults; with pre-norm, what feeds the residual connections is divided
    by sqrt(2 L).
    """

    def __init__(self, options: TransformerOptions, own_keys: bool):
        super().__init__()
        D = options.decoder_embed_dim
        self.normalize_before = options.decoder_normalize_before
        self.self_attn = SelfAttention(options, own_keys)
        self.self_attn_layer_norm = nn.LayerNorm(D)
        self.fc1 = nn.Linear(D, options.decoder_ffn_embed_dim)
        self.fc2 = nn.Linear(options.decoder_ffn_embed_dim, D)
        self.final_layer_norm = nn.LayerNorm(D)
        if self.normalize_before:
            for module in (self.self_attn.out_proj, self.fc2):
                module.weight.data.div_(math.sqrt(2 * options.decoder_layers))

    def weights(self, reach: int) -> Layer:
        """The weights, with spans for ``reach`` steps back."""
        span = self.self_attn.adaptive_span
        return layer_weights(self, span_mask_HS=span.mask(reach) if span is not None else None)


def layer_weights(layer: nn.Module, **more) -> Layer:
    """The weights of a layer with fairseq's names, ours or fairseq's own; ``more`` are further fields of ``Layer``."""
    return Layer(
        query=affine(layer.self_attn.q_proj),
        out=affine(layer.self_attn.out_proj),
        attn_norm=affine(layer.self_attn_layer_norm),
        fc1=affine(layer.fc1),
        fc2=affine(layer.fc2),
        ffn_norm=affine(layer.final_layer_norm),
        **more,
    )


def own_projection(layer: nn.Module) -> Projection:
    """A layer's own key and value projections; the memory goes through the attention's norm."""
    return Projection(
        norm=affine(layer.self_attn_layer_norm) if layer.normalize_before else None,
        key=affine(layer.self_attn.k_proj),
        value=affine(layer.self_attn.v_proj),
    )
