"""``--arch feedback_decoder``: fairseq's Transformer encoder, and a decoder with feedback memory.

Fan et al., arXiv 2002.09402, v3 §4.2.1: "only the decoder is modified". Parameters carry fairseq's names.
"""

from dataclasses import fields
from typing import List, Optional

import torch
import torch.nn as nn
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase, TransformerModel
from fairseq.models.transformer.transformer_legacy import (
    base_architecture,
    transformer_iwslt_de_en,
    transformer_wmt_en_de_big,
)
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor

from fb_fairseq.errors import UserError, flag
from fb_fairseq.models.configuration import add_option_arguments, default_options, make_options
from fb_fairseq.models.decoder_state import DecoderState
from fb_fairseq.models.fairseq_layer import FairseqLayer
from fb_fairseq.models.feedback_transformer_lm import FEEDBACK_OPTIONS
from fb_fairseq.models.initialisation import InitialisationOptions, initialise_if_asked
from fb_fairseq.models.pruning import kept_layers, prune_memory
from fb_fairseq.models.stack_holder import StackHolder
from fb_fairseq.models.word_embeddings import check_dictionary
from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackOptions
from fb_fairseq.streams.resume import InitialisedModel

INITIALISATION_OPTIONS = tuple(f.name for f in fields(InitialisationOptions))


def decoder_options(cfg: TransformerConfig) -> TransformerOptions:
    """The stack's options, from fairseq's configuration.

    Raises:
        UserError: an option of fairseq's decoder that this one does not have, or one out of range.
    """
    refused = {
        "cross_self_attention": cfg.cross_self_attention,
        "base_layers": cfg.base_layers > 0,
        "quant_noise_pq": cfg.quant_noise.pq > 0,
        **{name: getattr(cfg, name, False) for name in ("scale_attn", "scale_fc", "scale_heads", "scale_resids")},
    }
    for name, given in refused.items():
        if given:
            raise UserError(f"{flag(name)}: --arch feedback_decoder does not support it; leave it out")
    values = dict(
        decoder_layers=cfg.decoder.layers,
        decoder_embed_dim=cfg.decoder.embed_dim,
        decoder_ffn_embed_dim=cfg.decoder.ffn_embed_dim,
        decoder_attention_heads=cfg.decoder.attention_heads,
        decoder_normalize_before=cfg.decoder.normalize_before,
        no_decoder_final_norm=True,  # fairseq's decoder has it
        activation_fn=cfg.activation_fn,
        attention_span=cfg.max_target_positions,
        relative_positions="none",
        dropout=cfg.dropout,
        attention_dropout=cfg.attention_dropout,
        activation_dropout=cfg.activation_dropout or cfg.relu_dropout or 0.0,
        decoder_layerdrop=cfg.decoder.layerdrop,
        checkpoint_activations=cfg.checkpoint_activations,
        **{name: getattr(cfg, name) for name in FEEDBACK_OPTIONS},
    )
    return make_options(TransformerOptions, values)


class FeedbackDecoder(StackHolder, TransformerDecoderBase):
    """Layers that attend to the feedback memory, then to the encoder, then feed forward.

    fairseq's decoder makes the layers, embeddings and output layer; a ``FeedbackTransformer`` on these layers does the
    rest. A step attends to all steps before it.
    """

    stack: FeedbackTransformer

    def __init__(self, cfg, dictionary, embed_tokens, no_encoder_attn=False, output_projection=None):
        self.options = decoder_options(cfg)
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn, output_projection)
        # By number: iterating over fairseq's list would drop some (LayerDrop).
        layers = [self.layers[l] for l in range(len(self.layers))]
        self.hold(FeedbackTransformer(self.options, [FairseqLayer(layer) for layer in layers]))
        memory = self.stack.memory
        if memory.shared:
            for projection in (memory.k_proj, memory.v_proj):
                nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)  # as fairseq's attention
            for layer in layers:
                layer.self_attn.k_proj = layer.self_attn.v_proj = None

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        """One of fairseq's own layers, without its wrappers: the stack does not call it."""
        return TransformerDecoderLayerBase(cfg, no_encoder_attn)

    def extract_features(
        self,
        prev_output_tokens,
        encoder_out=None,
        incremental_state=None,
        full_context_alignment=False,
        alignment_layer=None,
        alignment_heads=None,
    ):
        """See fairseq's ``TransformerDecoder.extract_features``. In decoding, all tokens that the state has not seen.

        Raises:
            UserError: targets are padded on the left; or ``full_context_alignment``, which a decoder that is sequential
                in time cannot have.
        """
        if full_context_alignment:
            raise UserError("--full-context-alignment: a feedback decoder cannot see future steps; leave it out")
        if prev_output_tokens.size(1) > 1 and prev_output_tokens[:, 0].eq(self.padding_idx).any():
            raise UserError("--left-pad-target: a feedback decoder needs targets padded on the right; leave it out")
        options = self._loop_options(alignment_layer, alignment_heads)
        if incremental_state is not None:
            state = self._state(encoder_out, incremental_state)
            x_TBD = self._embed(prev_output_tokens, state.ring.position).transpose(0, 1)
            y_TBD, aligned_BTC = self._decode(x_TBD, state, options)
        else:
            x_TBD = self._embed(prev_output_tokens, 0).transpose(0, 1)
            encoder = []
            if encoder_out is not None and encoder_out["encoder_out"]:
                encoder = self._encoder_contexts(encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"])
            dropouts = self.stack.draw_dropouts(x_TBD, len(x_TBD), encoder)
            empty_KCBD = x_TBD.new_zeros(self.stack.memory.memories, 0, *x_TBD.shape[1:])
            y_TBD, _, aligned_BTC = self.stack.run_loop(x_TBD, empty_KCBD, options, dropouts, encoder)
        if self.layer_norm is not None:
            y_TBD = self.layer_norm(y_TBD)
        features = y_TBD.transpose(0, 1)
        if self.project_out_dim is not None:
            features = self.project_out_dim(features)
        return features, {"attn": [aligned_BTC], "inner_states": None}

    def _decode(self, x_TBD, state: DecoderState, options: FeedbackOptions):
        """Run steps one by one: features [T, B, D], and the attention to the encoder [B, T, C]."""

        def step(x_BD):
            result = self.stack.step(x_BD, state.ring, options, state.encoder)
            return result.out_BD, result.aligned_BC

        out, aligned = zip(*(state.ring.run(step, x_BD) for x_BD in x_TBD))
        return torch.stack(out), None if aligned[0] is None else torch.stack(aligned, 1)

    def _embed(self, tokens, start: int):
        """Embeddings [B, t, D] of the tokens [B, T] from position ``start`` on."""
        x_BTD = self.embed_scale * self.embed_tokens(tokens[:, start:])
        if self.project_in_dim is not None:
            x_BTD = self.project_in_dim(x_BTD)
        if self.embed_positions is not None:
            x_BTD = x_BTD + self.embed_positions(tokens)[:, start:]
        if self.layernorm_embedding is not None:
            x_BTD = self.layernorm_embedding(x_BTD)
        return self.dropout_module(x_BTD)

    def _loop_options(self, alignment_layer: Optional[int], alignment_heads: Optional[int]) -> FeedbackOptions:
        """The loop's settings; in evaluation with the attention to the encoder, by default of the last layer."""
        span, last = self.options.attention_span, self.options.decoder_layers - 1
        if self.training:
            return self.stack.loop_options(span, None, alignment_heads)
        return self.stack.loop_options(span, last if alignment_layer is None else alignment_layer, alignment_heads)

    def _state(self, encoder_out, incremental_state) -> DecoderState:
        """The state of decoding; made at the first step."""
        state = self.get_incremental_state(incremental_state, "feedback")
        if state is None:
            state = DecoderState(self.stack.new_ring(), encoder_out, self._encoder_contexts)
            self.set_incremental_state(incremental_state, "feedback", state)
        return state

    def _encoder_contexts(self, out_CBD: Tensor, padding_BC: List[Tensor]) -> List[EncoderContext]:
        """Each layer's keys and values of the encoder's output."""
        padding = padding_BC[0] if padding_BC else None
        contexts = [layer.encoder_context(out_CBD, padding) for layer in self.stack.layers]
        return [context for context in contexts if context is not None]

    def reorder_incremental_state(self, incremental_state, new_order):
        """Take the rows in another order (beam search)."""
        state = self.get_incremental_state(incremental_state, "feedback")
        if state is not None:
            state.reorder(new_order)

    def state_bytes(self, incremental_state) -> int:
        """Bytes of the decoder's own keys and values, without those of the encoder's output."""
        return self.get_incremental_state(incremental_state, "feedback").ring.nbytes()


@register_model("feedback_decoder")
class FeedbackDecoderModel(TransformerModel, InitialisedModel):
    """Encoder-decoder for translation and summarization, with all options of fairseq's ``transformer``."""

    @classmethod
    def hub_models(cls):
        """None are published."""
        return {}

    @classmethod
    def add_args(cls, parser):
        """Add fairseq's options and this model's own."""
        super().add_args(parser)
        add_option_arguments(parser, TransformerOptions, *FEEDBACK_OPTIONS)
        add_option_arguments(parser, InitialisationOptions, *INITIALISATION_OPTIONS)

    @classmethod
    def build_model(cls, args, task):
        """Build a model; with ``--init-from-transformer`` its parameters are those of a checkpoint.

        Raises:
            UserError: see ``decoder_options`` and ``fb_fairseq.models.initialisation``.
        """
        feedback_decoder(args)
        decoder_options(TransformerConfig.from_namespace(args))  # before fairseq fails without naming the option
        model = super().build_model(args, task)
        initialise_if_asked(model, args)
        return model

    @classmethod
    def build_decoder(cls, args, tgt_dict, embed_tokens):
        """Build the decoder."""
        cfg = TransformerConfig.from_namespace(args)
        return FeedbackDecoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """Load a checkpoint's parameters.

        Raises:
            UserError: it was trained with dictionaries of another size, or lacks the layers to keep.
        """
        check_dictionary(state_dict, "encoder", self.encoder.dictionary, "dict.<source language>.txt")
        check_dictionary(state_dict, "decoder", self.decoder.dictionary, "dict.<target language>.txt")
        prune_memory(state_dict, kept_layers(model_cfg))
        return super().load_state_dict(state_dict, strict, model_cfg, args)


@register_model_architecture("feedback_decoder", "feedback_decoder")
def feedback_decoder(args):
    """fairseq's base sizes; one projection of the memory for all layers."""
    defaults = {
        **default_options(TransformerOptions, *FEEDBACK_OPTIONS),
        **default_options(InitialisationOptions, *INITIALISATION_OPTIONS),
    }
    for name, default in defaults.items():
        if getattr(args, name, None) is None:
            setattr(args, name, default)
    base_architecture(args)


# v3 Table 8. The learning rates of the table are in the recipes of examples/.


@register_model_architecture("feedback_decoder", "feedback_decoder_iwslt_de_en")
def feedback_decoder_iwslt_de_en(args):
    """IWSLT'14 De-En."""
    args.dropout = getattr(args, "dropout", 0.3)
    transformer_iwslt_de_en(args)
    feedback_decoder(args)


@register_model_architecture("feedback_decoder", "feedback_decoder_wmt_en_de_big")
def feedback_decoder_wmt_en_de_big(args):
    """WMT'14 En-De: the big Transformer's sizes."""
    args.dropout = getattr(args, "dropout", 0.3)
    transformer_wmt_en_de_big(args)
    feedback_decoder(args)


@register_model_architecture("feedback_decoder", "feedback_decoder_cnn_dm")
def feedback_decoder_cnn_dm(args):
    """CNN/DailyMail: the base Transformer's sizes."""
    args.dropout = getattr(args, "dropout", 0.3)
    feedback_decoder(args)
