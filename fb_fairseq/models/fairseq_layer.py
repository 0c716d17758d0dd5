"""Adapter from fairseq's decoder layers to the interface of a stack's layers."""

from collections.abc import Iterator

import torch.nn as nn
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor

from fb_fairseq.modules.cross_attention import cross_attention, encoder_context
from fb_fairseq.modules.layer import LayerWeights, attention_projection, transformer_weights
from fb_fairseq.ops.feedback.types import EncoderContext
from fb_fairseq.ops.layers import Layer, Projection


class FairseqLayer(LayerWeights):
    """A decoder layer of fairseq. A stack uses its parameters only."""

    def __init__(self, layer: TransformerDecoderLayerBase):
        self.layer = layer

    def weights(self, reach: int) -> Layer:
        """See ``LayerWeights``. (fairseq's layers have no adaptive spans.)"""
        return transformer_weights(self.layer, cross=cross_attention(self.layer))

    def projection(self) -> Projection:
        return attention_projection(self.layer)

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.layer.parameters()

    def attention_parameters(self) -> list[nn.Parameter]:
        return [*self.layer.self_attn.parameters(), *self.layer.self_attn_layer_norm.parameters()]

    def encoder_context(self, out_CBD: Tensor, padding_BC: Tensor | None) -> EncoderContext | None:
        """Keys and values of the encoder's output; None without cross attention."""
        return encoder_context(self.layer, out_CBD, padding_BC)
