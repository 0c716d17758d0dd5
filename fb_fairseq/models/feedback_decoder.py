"""``--arch feedback_decoder``: fairseq's Transformer encoder, and a decoder with feedback memory.

Fan et al., arXiv 2002.09402, v3 §4.2.1: "only the decoder is modified". Parameters carry fairseq's names.
"""

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

from fb_fairseq.errors import UserError
from fb_fairseq.models.decoder_state import DecoderState
from fb_fairseq.models.initialisation import INIT_OPTIONS, initialise_if_asked
from fb_fairseq.models.pruning import kept_layers, prune_memory
from fb_fairseq.models.word_embeddings import check_dictionary
from fb_fairseq.modules.layer import affine, layer_weights, own_projection
from fb_fairseq.modules.memory import FeedbackMemory
from fb_fairseq.modules.options import COMPOSITIONS, TransformerOptions
from fb_fairseq.modules.ring import MemoryRing
from fb_fairseq.modules.stack import draw_active_layers, touch_attention
from fb_fairseq.ops.attention import Positions
from fb_fairseq.ops.feedback.reference import feedback_step
from fb_fairseq.ops.feedback.select import HELP, KERNELS, STEP_LOOPS, step_loop
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackDropouts, FeedbackOptions, FeedbackWeights
from fb_fairseq.ops.layers import (
    CrossAttention,
    Projection,
    at_least_fp32,
    draw_dropout,
    project_memory,
    project_query,
)


def decoder_options(cfg) -> TransformerOptions:
    """The decoder's sizes, from fairseq's options.

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
            raise UserError(f"--{name.replace('_', '-')}: --arch feedback_decoder does not have it; leave it out")
    try:
        return TransformerOptions(
            decoder_layers=cfg.decoder.layers,
            decoder_embed_dim=cfg.decoder.embed_dim,
            decoder_ffn_embed_dim=cfg.decoder.ffn_embed_dim,
            decoder_attention_heads=cfg.decoder.attention_heads,
            decoder_normalize_before=cfg.decoder.normalize_before,
            activation_fn=str(cfg.activation_fn),
            attention_span=cfg.max_target_positions,
            relative_positions="none",
            dropout=cfg.dropout,
            attention_dropout=cfg.attention_dropout,
            activation_dropout=cfg.activation_dropout or cfg.relu_dropout or 0.0,
            decoder_layerdrop=cfg.decoder.layerdrop,
            memory_composition=cfg.memory_composition,
            memory_projections=cfg.memory_projections,
            checkpoint_activations=cfg.checkpoint_activations,
            step_loop=cfg.step_loop,
            step_loop_kernel=cfg.step_loop_kernel,
            step_loop_recompute=cfg.step_loop_recompute,
        )
    except ValueError as error:
        raise UserError(str(error)) from None


class FeedbackDecoder(TransformerDecoderBase):
    """Layers that attend to the feedback memory, then to the encoder, then feed forward.

    Built like fairseq's decoder, whose layers hold the parameters here; the arithmetic is ``fb_fairseq.ops``'. A step
    attends to all steps before it.
    """

    def __init__(self, cfg, dictionary, embed_tokens, no_encoder_attn=False, output_projection=None):
        options = decoder_options(cfg)
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn, output_projection)
        self.options = options
        self.memory = FeedbackMemory(options)
        if self.memory.shared:
            for projection in (self.memory.k_proj, self.memory.v_proj):
                nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)  # as fairseq's attention
            for layer in self._layers():
                layer.self_attn.k_proj = layer.self_attn.v_proj = None

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        return TransformerDecoderLayerBase(cfg, no_encoder_attn)

    def _layers(self) -> List[TransformerDecoderLayerBase]:
        """All layers; iterating over fairseq's list would drop some."""
        return [self.layers[l] for l in range(len(self.layers))]

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
            UserError: targets are padded on the left; see also ``full_context_alignment``, which a decoder that is
                sequential in time cannot have.
        """
        if full_context_alignment:
            raise UserError("--full-context-alignment: a feedback decoder cannot see the steps to come; leave it out")
        if prev_output_tokens.size(1) > 1 and prev_output_tokens[:, 0].eq(self.padding_idx).any():
            raise UserError("--left-pad-target: a feedback decoder wants targets padded on the right; leave it out")
        attend = not self.training
        options = self._loop_options(alignment_layer if attend else None, alignment_heads, attend)
        if incremental_state is not None:
            state = self._state(encoder_out, incremental_state)
            x_TBD = self._embed(prev_output_tokens, state.ring.position).transpose(0, 1)
            y_TBD, aligned_BTC = self._decode(x_TBD, state, options)
        else:
            x_TBD = self._embed(prev_output_tokens, 0).transpose(0, 1)
            encoder = []
            if encoder_out is not None and encoder_out["encoder_out"]:
                encoder = self._encoder_contexts(encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"])
            y_TBD, _, aligned_BTC = step_loop(self.options.step_loop)(
                x_TBD,
                x_TBD.new_zeros(self.memory.memories, 0, *x_TBD.shape[1:]),
                self._weights(),
                options,
                self._draw_dropouts(x_TBD, encoder),
                draw_active_layers(self, self.options),
                encoder,
            )
            y_TBD = touch_attention(self, y_TBD)
        if self.layer_norm is not None:
            y_TBD = self.layer_norm(y_TBD)
        features = y_TBD.transpose(0, 1)
        if self.project_out_dim is not None:
            features = self.project_out_dim(features)
        return features, {"attn": [aligned_BTC], "inner_states": None}

    def _decode(self, x_TBD, state: DecoderState, options: FeedbackOptions):
        """Step by step: features [T, B, D], and the attention to the encoder [B, T, C]."""

        def step(x_BD):
            weights = self._weights()
            query_BHE = project_query(x_BD, weights.layers[0], options.heads, options.normalize_before)
            windows = state.ring.windows(weights, options, x_BD)
            result = feedback_step(x_BD, query_BHE, windows, weights, options, encoder=state.encoder)
            state.ring.push(result.memory_KBD, weights, options)
            return result.out_BD, result.aligned_BC

        out, aligned = zip(*(state.ring.run(step, x_BD) for x_BD in x_TBD))
        return torch.stack(out), None if aligned[0] is None else torch.stack(aligned, 1)

    def _embed(self, tokens, start: int):
        """[B, T] tokens, of which the state has seen the first ones, to the embeddings of the others [B, t, D]."""
        x_BTD = self.embed_scale * self.embed_tokens(tokens[:, start:])
        if self.project_in_dim is not None:
            x_BTD = self.project_in_dim(x_BTD)
        if self.embed_positions is not None:
            x_BTD = x_BTD + self.embed_positions(tokens)[:, start:]
        if self.layernorm_embedding is not None:
            x_BTD = self.layernorm_embedding(x_BTD)
        return self.dropout_module(x_BTD)

    def _weights(self) -> FeedbackWeights:
        layers = self._layers()
        return FeedbackWeights(
            layers=[layer_weights(layer, cross=cross_weights(layer)) for layer in layers],
            projections=[self.memory.projection()]
            if self.memory.shared
            else [own_projection(layer) for layer in layers],
            mix_KN=self.memory.mix(self.embed_tokens.weight.device),
            positions=Positions(),
        )

    def _loop_options(self, alignment_layer: Optional[int], alignment_heads, attend: bool) -> FeedbackOptions:
        o = self.options
        return FeedbackOptions(
            heads=o.decoder_attention_heads,
            span=o.attention_span,
            activation=o.activation_fn,
            normalize_before=o.decoder_normalize_before,
            kernel=o.step_loop_kernel,
            recompute=o.checkpoint_activations or o.step_loop_recompute,
            alignment_layer=(o.decoder_layers - 1 if alignment_layer is None else alignment_layer) if attend else None,
            alignment_heads=alignment_heads,
        )

    def _state(self, encoder_out, incremental_state) -> DecoderState:
        """The state of decoding; made at the first step."""
        state = self.get_incremental_state(incremental_state, "feedback")
        if state is None:
            ring = MemoryRing(self.options.attention_span, captured=self.options.step_loop == "graph")
            state = DecoderState(ring, encoder_out, self._encoder_contexts)
            self.set_incremental_state(incremental_state, "feedback", state)
        return state

    def _encoder_contexts(self, out_CBD: Tensor, padding_BC: List[Tensor]) -> List[EncoderContext]:
        """Each layer's keys and values of the encoder's output."""
        contexts = []
        for layer in self._layers():
            if layer.encoder_attn is not None:
                attention = layer.encoder_attn
                projection = Projection(None, affine(attention.k_proj), affine(attention.v_proj))
                keys_values = project_memory(out_CBD, projection, attention.num_heads)
                contexts.append(EncoderContext(*map(at_least_fp32, keys_values), padding_BC[0] if padding_BC else None))
        return contexts

    def _draw_dropouts(self, x_TBD, encoder: List[EncoderContext]) -> FeedbackDropouts:
        o = self.options
        T, B, D = x_TBD.shape
        L, H = len(self.layers), o.decoder_attention_heads

        def draw(p, *shape):
            return draw_dropout(p if self.training else 0.0, (L, T, B, *shape), x_TBD)

        return FeedbackDropouts(
            attention_LTBHS=draw(o.attention_dropout, H, T),
            hidden_LTBF=draw(o.activation_dropout, o.decoder_ffn_embed_dim),
            attention_residual_LTBD=draw(o.dropout, D),
            ffn_residual_LTBD=draw(o.dropout, D),
            cross_LTBHC=draw(o.attention_dropout, H, len(encoder[0].keys_CBHE)) if encoder else None,
            cross_residual_LTBD=draw(o.dropout, D) if encoder else None,
        )

    def reorder_incremental_state(self, incremental_state, new_order):
        state = self.get_incremental_state(incremental_state, "feedback")
        if state is not None:
            state.reorder(new_order)

    def state_bytes(self, incremental_state) -> int:
        """Bytes of the decoder's own keys and values, those of the encoder not counted."""
        return self.get_incremental_state(incremental_state, "feedback").ring.nbytes()


def cross_weights(layer: TransformerDecoderLayerBase) -> Optional[CrossAttention]:
    """The weights of a fairseq layer's attention to the encoder, where it has one."""
    attention = layer.encoder_attn
    if attention is None:
        return None
    return CrossAttention(affine(attention.q_proj), affine(attention.out_proj), affine(layer.encoder_attn_layer_norm))


@register_model("feedback_decoder")
class FeedbackDecoderModel(TransformerModel):
    """Encoder-decoder of translation and summarization, with all options of fairseq's ``transformer``."""

    @classmethod
    def hub_models(cls):
        return {}

    @classmethod
    def add_args(cls, parser):
        super().add_args(parser)
        parser.add_argument("--memory-composition", help=f"what the memory holds of the layers: {COMPOSITIONS}")
        parser.add_argument(
            "--memory-projections",
            choices=["shared", "per-layer"],
            help="one key and value projection for all layers (v3 of the paper), or one a layer (v1)",
        )
        parser.add_argument("--step-loop", choices=list(STEP_LOOPS), help=HELP["step_loop"])
        parser.add_argument("--step-loop-kernel", choices=list(KERNELS), help=HELP["step_loop_kernel"])
        parser.add_argument("--step-loop-recompute", action="store_true", help=HELP["step_loop_recompute"])
        for name, (_, text) in INIT_OPTIONS.items():
            parser.add_argument(f"--{name.replace('_', '-')}", help=text)

    @classmethod
    def build_model(cls, args, task):
        feedback_decoder(args)
        decoder_options(TransformerConfig.from_namespace(args))  # before fairseq stumbles
        model = super().build_model(args, task)
        initialise_if_asked(model, args)
        return model

    @classmethod
    def build_decoder(cls, args, tgt_dict, embed_tokens):
        cfg = TransformerConfig.from_namespace(args)
        return FeedbackDecoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        check_dictionary(state_dict, "encoder", self.encoder.dictionary, "dict.<source language>.txt")
        check_dictionary(state_dict, "decoder", self.decoder.dictionary, "dict.<target language>.txt")
        prune_memory(self.decoder, state_dict, kept_layers(model_cfg))
        return super().load_state_dict(state_dict, strict, model_cfg, args)


@register_model_architecture("feedback_decoder", "feedback_decoder")
def feedback_decoder(args):
    """fairseq's base sizes; one projection of the memory for all layers."""
    args.memory_composition = getattr(args, "memory_composition", "weighted")
    args.memory_projections = getattr(args, "memory_projections", "shared")
    args.step_loop = getattr(args, "step_loop", "auto")
    args.step_loop_kernel = getattr(args, "step_loop_kernel", "torch")
    args.step_loop_recompute = getattr(args, "step_loop_recompute", False)
    for name, (default, _) in INIT_OPTIONS.items():
        setattr(args, name, getattr(args, name, default))
    base_architecture(args)


# v3 Table 8. The learning rates of the table are in the recipes of examples/.


@register_model_architecture("feedback_decoder", "feedback_decoder_iwslt_de_en")
def feedback_decoder_iwslt_de_en(args):
    args.dropout = getattr(args, "dropout", 0.3)
    transformer_iwslt_de_en(args)
    feedback_decoder(args)


@register_model_architecture("feedback_decoder", "feedback_decoder_wmt_en_de_big")
def feedback_decoder_wmt_en_de_big(args):
    args.dropout = getattr(args, "dropout", 0.3)
    transformer_wmt_en_de_big(args)
    feedback_decoder(args)


@register_model_architecture("feedback_decoder", "feedback_decoder_cnn_dm")
def feedback_decoder_cnn_dm(args):
    """The base Transformer's sizes."""
    args.dropout = getattr(args, "dropout", 0.3)
    feedback_decoder(args)
