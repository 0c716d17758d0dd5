"""Attention to an encoder, of layers with fairseq's parameter names: ours, or fairseq's own.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``; C counts the encoder's positions.
"""

import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.affine import affine, norm
from fb_fairseq.modules.layer import TransformerLayer, transformer_weights
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.ops.feedback.types import EncoderContext
from fb_fairseq.ops.layers import CrossAttention, Layer, Projection, at_least_fp32, project_memory


class EncoderAttention(nn.Module):
    """The projections of a layer's attention to the encoder.

    Args:
        width: of the decoder.
        encoder_width: of the encoder's output.
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

    Args:
        encoder_width: width of the encoder's output.
    """

    def __init__(self, options: TransformerOptions, own_keys: bool, encoder_width: int):
        super().__init__(options, own_keys)
        width = options.decoder_embed_dim
        self.encoder_attn = EncoderAttention(width, encoder_width, options.decoder_attention_heads)
        self.encoder_attn_layer_norm = nn.LayerNorm(width)

    def weights(self, reach: int) -> Layer:
        return transformer_weights(self, cross=cross_attention(self))


def cross_attention(layer: nn.Module) -> CrossAttention | None:
    """The weights of a layer's attention to the encoder; None if it has no such attention."""
    attention = layer.encoder_attn
    if attention is None:
        return None
    return CrossAttention(affine(attention.q_proj), affine(attention.out_proj), norm(layer.encoder_attn_layer_norm))


def encoder_context(layer: nn.Module, out_CBD: Tensor, padding_BC: Tensor | None) -> EncoderContext | None:
    """A layer's keys and values of an encoder's output; None if the layer does not attend to it.

    They are at least fp32, because each position's gradient is a sum over steps.

    Args:
        padding_BC: True where the source is padded.
    """
    attention = layer.encoder_attn
    if attention is None:
        return None
    projection = Projection(None, affine(attention.k_proj), affine(attention.v_proj))
    keys, values = project_memory(out_CBD, projection, attention.num_heads)
    return EncoderContext(at_least_fp32(keys), at_least_fp32(values), padding_BC)
