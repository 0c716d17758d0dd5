"""The papers' own baseline: a Transformer with cached context and relative positions, parallel over the block."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fb_fairseq.modules.interface import StreamState
from fb_fairseq.modules.layer import attention_projection
from fb_fairseq.modules.stack import TransformerStack
from fb_fairseq.ops.attention import block_attention
from fb_fairseq.ops.feedback.types import FeedbackWeights
from fb_fairseq.ops.layers import attention_residual, feed_forward, project_memory, project_query


class RelativeTransformer(TransformerStack):
    """The baseline's layers (Feedback Transformer v3 §3.1, §7.6).

    It carries the inputs of its layers at the last S steps, and no step attends to itself.
    """

    def loop_weights(self, device: torch.device, reaches: list[int]) -> FeedbackWeights:
        """See ``TransformerStack.loop_weights``: step by step, the baseline is the Feedback Transformer of ``previous``
        composition, where layer l attends to the outputs of layer l - 1.
        """
        L = len(self.layers)
        return FeedbackWeights(
            layers=[self.layer_weights(layer, reach) for layer, reach in zip(self.layers, reaches)],
            projections=[attention_projection(layer) for layer in self.layers],
            mix_KA=torch.eye(L, L + 1, device=device),
            positions=self.positions.weights(),
        )

    def run_block(
        self, x_TBD: Tensor, state: StreamState | None = None, age_TB: Tensor | None = None
    ) -> tuple[Tensor, StreamState]:
        reaches = self.reaches()
        state = StreamState.entering(state, len(self.layers), self.options.attention_span, x_TBD)
        inputs = []
        for l, active in enumerate(self.active_layers()):
            inputs.append(x_TBD)
            if active:
                arguments = self.layers[l], x_TBD, state.memory_KCBD[l, -reaches[l] :], reaches[l], age_TB
                if self.options.checkpoint_activations and torch.is_grad_enabled():
                    x_TBD = checkpoint(self.run_layer, *arguments, use_reentrant=False)
                else:
                    x_TBD = self.run_layer(*arguments)
        y_TBD = self.finish(self.add_zero_gradient_terms(x_TBD), inputs)
        return y_TBD, state.extended(torch.stack(inputs), self.carried_steps(reaches))

    def run_layer(self, layer: Any, x_TBD: Tensor, carried_CBD: Tensor, reach: int, age_TB: Tensor | None) -> Tensor:
        """Run a layer over a block.

        Args:
            layer: one of the layers.
            x_TBD: its inputs.
            carried_CBD: its inputs at the C steps before the block.
            reach: how many steps back it attends.
            age_TB: see ``run_block``.
        """
        o = self.options
        T, B, D = x_TBD.shape
        weights = self.layer_weights(layer, reach)
        heads = o.decoder_attention_heads
        before = o.decoder_normalize_before
        context = self.context(layer, x_TBD, carried_CBD)
        attended = block_attention(
            project_query(x_TBD, weights, heads, before),
            *context,
            span=reach,
            positions=self.positions.weights().reaching(reach),
            mask_BHTS=self.draw(o.attention_dropout, (B, heads, T, reach), x_TBD),
            span_mask_HS=weights.span_mask_HS,
            age_TB=age_TB,
        )
        x_TBD = attention_residual(x_TBD, attended, weights, before, self.draw(o.dropout, (T, B, D), x_TBD))
        return feed_forward(
            x_TBD,
            weights,
            activation=o.activation_fn,
            normalize_before=before,
            hidden=self.draw(o.activation_dropout, (T, B, o.decoder_ffn_embed_dim), x_TBD),
            residual=self.draw(o.dropout, (T, B, D), x_TBD),
        )

    def context(self, layer: Any, x_TBD: Tensor, carried_CBD: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's context in a block: keys and values [C, B, H, E] of the steps that it attends to.

        Args:
            layer, x_TBD, carried_CBD: see ``run_layer``.
        """
        # The block's last step is left out: no step of the block attends to it.
        inputs_CBD = torch.cat([carried_CBD, x_TBD[:-1]])
        return project_memory(inputs_CBD, attention_projection(layer), self.options.context_heads)
