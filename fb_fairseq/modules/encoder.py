"""A Transformer encoder (Vaswani et al. 2017) in torch, with the parameter names of fairseq's.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``; C counts the source's positions.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fb_fairseq.modules.affine import norm
from fb_fairseq.modules.embedder import Embedder
from fb_fairseq.modules.layer import TransformerLayer, attention_projection, transformer_weights
from fb_fairseq.modules.options import EncoderOptions, TransformerOptions
from fb_fairseq.ops.dropout import draw_dropout
from fb_fairseq.ops.layers import attention_residual, feed_forward, layer_norm, project_memory, project_query


class TransformerEncoder(Embedder):
    """Layers of self-attention and feed-forward sublayers."""

    def __init__(self, options: EncoderOptions, embed_tokens: nn.Embedding):
        learned, longest = options.encoder_learned_pos, options.max_source_positions
        super().__init__(options, embed_tokens, learned, longest, "max_source_positions")
        self.options = options
        layer_options = TransformerOptions(
            decoder_layers=options.encoder_layers,
            decoder_embed_dim=options.encoder_embed_dim,
            decoder_ffn_embed_dim=options.encoder_ffn_embed_dim,
            decoder_attention_heads=options.encoder_attention_heads,
            decoder_normalize_before=options.encoder_normalize_before,
        )
        layers = [TransformerLayer(layer_options, own_keys=True) for _ in range(options.encoder_layers)]
        self.layers = nn.ModuleList(layers)
        self.layer_norm = nn.LayerNorm(options.encoder_embed_dim) if options.encoder_normalize_before else None

    def forward(self, tokens_BC: Tensor, kept_BC: Tensor) -> Tensor:
        """Read sources.

        Args:
            tokens_BC: of the sources.
            kept_BC: False where a token is padding, which may be anywhere.

        Returns:
            The top layer's output [C, B, D].
        """
        x = self.embed(tokens_BC, kept_BC.cumsum(1) * kept_BC).transpose(0, 1)
        recompute = self.options.checkpoint_activations and self.training and torch.is_grad_enabled()
        for layer in self.layers:
            if self.training and self.options.encoder_layerdrop and torch.rand(()) < self.options.encoder_layerdrop:
                continue
            if recompute:
                x = checkpoint(self._run, layer, x, kept_BC, use_reentrant=False)
            else:
                x = self._run(layer, x, kept_BC)
        return layer_norm(x, self.layer_norm and norm(self.layer_norm))

    def _run(self, layer: TransformerLayer, x_CBD: Tensor, kept_BC: Tensor) -> Tensor:
        """Run a layer."""
        o = self.options
        weights = transformer_weights(layer, 0)
        heads, pre_norm = o.encoder_attention_heads, o.encoder_normalize_before

        def draw(p: float, *shape: int):
            return draw_dropout(p if self.training else 0.0, shape, x_CBD)

        query_CBHE = project_query(x_CBD, weights, heads, pre_norm)
        attended_BHCE = F.scaled_dot_product_attention(
            *(y.permute(1, 2, 0, 3) for y in (query_CBHE, *project_memory(x_CBD, attention_projection(layer), heads))),
            attn_mask=kept_BC[:, None, None],
            dropout_p=o.attention_dropout if self.training else 0.0,
        )
        residual = draw(o.dropout, *x_CBD.shape)
        hidden = draw(o.activation_dropout, *x_CBD.shape[:2], o.encoder_ffn_embed_dim)
        x_CBD = attention_residual(x_CBD, attended_BHCE.permute(2, 0, 1, 3), weights, pre_norm, residual)
        return feed_forward(
            x_CBD,
            weights,
            activation=o.activation_fn,
            normalize_before=pre_norm,
            hidden=hidden,
            residual=draw(o.dropout, *x_CBD.shape),
        )
