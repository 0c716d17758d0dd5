"""The Feedback Transformer: all layers attend to one memory of merged representations, step by step."""

from typing import List, Optional, Tuple

import torch
from torch import Tensor

from fb_fairseq.modules.layer import own_projection
from fb_fairseq.modules.memory import FeedbackMemory
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.stack import TransformerStack, draw_active_layers, touch_attention
from fb_fairseq.modules.state import StreamState
from fb_fairseq.ops.feedback.select import step_loop
from fb_fairseq.ops.feedback.types import FeedbackDropouts, FeedbackWeights


class FeedbackTransformer(TransformerStack):
    """The Feedback Transformer's layers and memory (v3 §3.3); see ``TransformerStack.run_block``."""

    def build(self, options: TransformerOptions) -> None:
        super().build(options, own_keys=options.memory_projections == "per-layer")
        self.memory = FeedbackMemory(options)

    def loop_weights(self, device: torch.device, reaches: List[int]) -> FeedbackWeights:
        memory = self.memory
        projections = [memory.projection()] if memory.shared else [own_projection(layer) for layer in self.layers]
        return FeedbackWeights(
            layers=[layer.weights(reach) for layer, reach in zip(self.layers, reaches)],
            projections=projections,
            mix_KN=memory.mix(device),
            positions=self.positions.weights(),
        )

    def run_block(
        self, x_TBD: Tensor, state: Optional[StreamState] = None, reach_TB: Optional[Tensor] = None
    ) -> Tuple[Tensor, StreamState]:
        reaches = self.reaches()
        state = StreamState.entering(state, self.memory.memories, self.options.attention_span, x_TBD)
        weights = self.loop_weights(x_TBD.device, reaches)
        out_TBD, memory_KTBD, _ = step_loop(self.options.step_loop)(
            x_TBD,
            state.memory_KCBD[:, -max(reaches) :],
            weights,
            self.loop_options(max(reaches)),
            self._draw_dropouts(x_TBD),
            draw_active_layers(self, self.options),
            reach_TB=reach_TB,
        )
        return self.finish(touch_attention(self, out_TBD)), state.extended(memory_KTBD, self.kept_steps(reaches))

    def _draw_dropouts(self, x_TBD: Tensor) -> FeedbackDropouts:
        o = self.options
        T, B, D = x_TBD.shape
        L = len(self.layers)
        return FeedbackDropouts(
            attention_LTBHS=self.draw(
                o.attention_dropout, (L, T, B, o.decoder_attention_heads, o.attention_span), x_TBD
            ),
            hidden_LTBF=self.draw(o.activation_dropout, (L, T, B, o.decoder_ffn_embed_dim), x_TBD),
            attention_residual_LTBD=self.draw(o.dropout, (L, T, B, D), x_TBD),
            ffn_residual_LTBD=self.draw(o.dropout, (L, T, B, D), x_TBD),
        )
