"""The Feedback Transformer: all layers attend to one memory of merged representations, step by step."""

from collections.abc import Sequence

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.interface import Report, StreamState
from fb_fairseq.modules.layer import attention_projection, encoder_context
from fb_fairseq.modules.memory import FeedbackMemory
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.stack import TransformerStack
from fb_fairseq.ops.feedback.decoding import DecoderState
from fb_fairseq.ops.feedback.loops import REFERENCE, log_choice, run_block
from fb_fairseq.ops.feedback.reference import feedback_steps, stack_attention
from fb_fairseq.ops.feedback.types import (
    BlockInputs,
    BlockResults,
    EncoderContext,
    FeedbackDropouts,
    FeedbackOptions,
    FeedbackWeights,
)
from fb_fairseq.ops.layers import has_modules
from fb_fairseq.ops.log import log_once
from fb_fairseq.ops.tracing import is_tracing, outside_compiler


class FeedbackTransformer(TransformerStack):
    """The Feedback Transformer's layers and memory (v3 §3.3). ``layers``: layers that belong to another module
    (fairseq's decoder); None: new ones.
    """

    sequential = True

    def __init__(self, options: TransformerOptions, layers: Sequence[nn.Module] | None = None):
        super().__init__(options, own_keys=options.memory_projections == "per-layer", layers=layers)
        self.memory = FeedbackMemory(options)

    def attention_parameters(self) -> list[nn.Parameter]:
        """Parameters without a gradient if T = 1 and nothing is carried in."""
        return [*super().attention_parameters(), *self.memory.parameters()]

    def loop_weights(self, device: torch.device, reaches: list[int]) -> FeedbackWeights:
        memory = self.memory
        projections = [memory.projection()] if memory.shared else [attention_projection(layer) for layer in self.layers]
        return FeedbackWeights(
            layers=[self.layer_weights(layer, reach) for layer, reach in zip(self.layers, reaches)],
            projections=projections,
            mix_KA=memory.mix(device),
            positions=self.positions.weights(),
        )

    def run_block(
        self, x_TBD: Tensor, state: StreamState | None = None, age_TB: Tensor | None = None
    ) -> tuple[Tensor, StreamState]:
        reaches = self.reaches()
        state = StreamState.entering(state, self.memory.memories, self.options.attention_span, x_TBD)
        inputs = self.block_inputs(
            x_TBD,
            memory_KCBD=state.memory_KCBD[:, -max(reaches) :],
            options=self.loop_options(max(reaches)),
            dropouts=self.draw_dropouts(x_TBD, self.options.attention_span),
            reaches=reaches,
            age_TB=age_TB,
        )
        representations: Sequence[Tensor] = ()
        if self.watched is None:
            out_TBD, memory_KTBD = self.run_loop(inputs)
        else:
            out_TBD, memory_KTBD, _, representations = self.run_reference_loop(inputs)
        y_TBD = self.finish(out_TBD, representations[:-1])
        return y_TBD, state.extended(memory_KTBD, self.carried_steps(reaches))

    @outside_compiler
    def run_loop(self, inputs: BlockInputs) -> BlockResults:
        """Run the step loop of ``--step-loop`` over a block, without the final norm. ``inputs``: see ``block_inputs``.

        Returns:
            Outputs [T, B, D] and memories [K, T, B, D]; the latter are constants.
        """
        loop = self.stepper.name
        if is_tracing():
            loop = REFERENCE
        else:
            log_choice(loop)
        if loop != REFERENCE and has_modules(inputs.weights):
            log_once(
                "step loops: adapters, hooks, quantised layers, and other norms and biases than usual run in the "
                "reference loop, which is slow"
            )
            loop = REFERENCE
        if inputs.active is not None and not all(inputs.active):  # (LayerDrop)
            loop = REFERENCE
        out_TBD, memory_KTBD = run_block(loop, inputs)
        return BlockResults(self.add_zero_gradient_terms(out_TBD), memory_KTBD)

    @outside_compiler
    def run_reference_loop(self, inputs: BlockInputs) -> tuple[Tensor, Tensor, Tensor | None, list[Tensor]]:
        """Run the reference loop over a block, whatever ``--step-loop`` is, for results that other loops return without
        gradients or not at all. ``inputs``: see ``block_inputs``.

        Returns:
            Outputs and memories as ``run_loop``; the attention to the encoder [B, T, C] of ``options.alignment_layer``,
            averaged over heads, or None; the embeddings and each layer's outputs, L + 1 times [T, B, D]. All of them
            are differentiable.
        """
        steps = feedback_steps(inputs)
        representations = [torch.stack(x) for x in zip(*(step.representations for step in steps))]
        aligned_BTC = stack_attention([step.aligned_BC for step in steps])
        memory_KTBD = torch.stack([step.memory_KBD for step in steps], 1)
        return self.add_zero_gradient_terms(representations[-1]), memory_KTBD, aligned_BTC, representations

    def target_inputs(
        self, x_TBD: Tensor, encoder: Sequence[EncoderContext], options: FeedbackOptions | None = None
    ) -> BlockInputs:
        """The inputs of a loop over whole targets, before which there is no memory.

        Args:
            x_TBD, encoder: see ``block_inputs``.
            options: see ``loop_options``; None: those of a full span.
        """
        T, B, D = x_TBD.shape
        return self.block_inputs(
            x_TBD,
            memory_KCBD=x_TBD.new_zeros(self.memory.memories, 0, B, D),
            options=options or self.loop_options(self.options.attention_span),
            dropouts=self.draw_dropouts(x_TBD, T, encoder),
            encoder=encoder,
        )

    def decode(self, x_TBD: Tensor, state: DecoderState, options: FeedbackOptions) -> tuple[Tensor, Tensor | None]:
        """Run steps of a translation one by one, without the final norm.

        Args:
            x_TBD: embeddings of the next T tokens.
            state: of the decoding; it has seen these tokens then.
            options: see ``loop_options``.

        Returns:
            Outputs [T, B, D], and the attention to the encoder [B, T, C] of ``options.alignment_layer``, or None.
        """
        steps = [self.decode_step(x_BD, state.ring, options, state.encoder) for x_BD in x_TBD]
        return torch.stack([step.out_BD for step in steps]), stack_attention([step.aligned_BC for step in steps])

    def encoder_contexts(self, out_CBD: Tensor, padding_BC: Tensor | None) -> list[EncoderContext]:
        """Keys and values of the encoder's output, of each layer that attends to it. ``padding_BC``: True where the
        source is padded.
        """
        contexts = [encoder_context(layer, out_CBD, padding_BC) for layer in self.layers]
        return [context for context in contexts if context is not None]

    @outside_compiler
    def block_inputs(
        self,
        x_TBD: Tensor,
        *,
        memory_KCBD: Tensor,
        options: FeedbackOptions,
        dropouts: FeedbackDropouts,
        encoder: Sequence[EncoderContext] = (),
        reaches: list[int] | None = None,
        age_TB: Tensor | None = None,
    ) -> BlockInputs:
        """The inputs of a loop over a block, with the model's weights and the layers that LayerDrop leaves.

        Args:
            x_TBD: embeddings.
            memory_KCBD: the memory carried in.
            options: see ``loop_options``.
            dropouts: see ``draw_dropouts``.
            encoder: each layer's keys and values of the encoder's output; empty if there is no encoder.
            reaches: how many steps back each layer attends; None: ``self.reaches()``.
            age_TB: see ``run_block``.

        Raises:
            ValueError: there are not as many ages as embeddings. (Loops would read beyond them.)
        """
        if age_TB is not None and age_TB.shape != x_TBD.shape[:2]:
            raise ValueError(f"age_TB: of shape {tuple(age_TB.shape)} for embeddings {tuple(x_TBD.shape)}")
        return BlockInputs(
            x_TBD=x_TBD,
            memory_KCBD=memory_KCBD,
            weights=self.loop_weights(x_TBD.device, reaches or self.reaches()),
            options=options,
            active=self.active_layers(),
            dropouts=dropouts,
            encoder=encoder,
            age_TB=age_TB,
        )

    def draw_dropouts(self, x_TBD: Tensor, slots: int, encoder: Sequence[EncoderContext] = ()) -> FeedbackDropouts:
        """Draw the masks of a block. ``slots``: the most slots that a step attends to."""
        o = self.options
        T, B, D = x_TBD.shape
        H = o.decoder_attention_heads

        def draw(p: float, *shape: int):
            return self.draw(p, (len(self.layers), T, B, *shape), x_TBD)

        return FeedbackDropouts(
            attention_LTBHS=draw(o.attention_dropout, H, slots),
            hidden_LTBF=draw(o.activation_dropout, o.decoder_ffn_embed_dim),
            attention_residual_LTBD=draw(o.dropout, D),
            ffn_residual_LTBD=draw(o.dropout, D),
            cross_LTBHC=draw(o.attention_dropout, H, len(encoder[0].keys_CBHE)) if encoder else None,
            cross_residual_LTBD=draw(o.dropout, D) if encoder else None,
        )

    def report(self) -> Report:
        """Adaptive spans; in validation also the shares in a memory that weights the layers for all steps alike:
        ``layer_weight_0`` of the embedding, ``layer_weight_1`` of the first layer, …
        """
        report = super().report()
        weights = self.memory.layer_weights
        if weights is not None and weights.dim() == 1 and not self.training:
            shares = torch.softmax(weights.float(), 0)
            report.logged.update({f"layer_weight_{l}": share for l, share in enumerate(shares)})
        return report
