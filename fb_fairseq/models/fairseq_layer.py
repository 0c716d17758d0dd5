"""Adapter from fairseq's decoder layers to the interface of a stack's layers."""

from typing import Iterator, List, Optional

import torch.nn as nn
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor

from fb_fairseq.modules.layer import LayerWeights, affine, attention_projection, transformer_weights
from fb_fairseq.ops.feedback.types import EncoderContext
from fb_fairseq.ops.layers import CrossAttention, Layer, Projection, at_least_fp32, project_memory


class FairseqLayer(LayerWeights):
    """A decoder layer of fairseq. A stack uses its parameters only."""

    def __init__(self, layer: TransformerDecoderLayerBase):
        self.layer = layer

    def weights(self, reach: int) -> Layer:
        """See ``LayerWeights``. (fairseq's layers have no adaptive spans.)"""
        return transformer_weights(self.layer, cross=self._cross_attention())

    def _cross_attention(self) -> Optional[CrossAttention]:
        """The weights of the attention to the encoder, if the layer has one."""
        attention = self.layer.encoder_attn
        if attention is None:
            return None
        norm = affine(self.layer.encoder_attn_layer_norm)
        return CrossAttention(affine(attention.q_proj), affine(attention.out_proj), norm)

    def projection(self) -> Projection:
        """See ``LayerWeights``."""
        return attention_projection(self.layer)

    def parameters(self) -> Iterator[nn.Parameter]:
        """See ``LayerWeights``."""
        return self.layer.parameters()

    def attention_parameters(self) -> List[nn.Parameter]:
        """See ``LayerWeights``."""
        return [*self.layer.self_attn.parameters(), *self.layer.self_attn_layer_norm.parameters()]

    def encoder_context(self, out_CBD: Tensor, padding_BC: Optional[Tensor]) -> Optional[EncoderContext]:
        """Keys and values of an encoder's output; None if the layer does not attend to it.

        They are at least fp32, because each position's gradient is a sum over steps.

        Args:
            padding_BC: True where the source is padded.
        """
        attention = self.layer.encoder_attn
        if attention is None:
            return None
        projection = Projection(None, affine(attention.k_proj), affine(attention.v_proj))
        keys, values = project_memory(out_CBD, projection, attention.num_heads)
        return EncoderContext(at_least_fp32(keys), at_least_fp32(values), padding_BC)
