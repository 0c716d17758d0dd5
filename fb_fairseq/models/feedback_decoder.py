"""``--arch feedback_decoder``: fairseq's Transformer encoder, and a decoder with feedback memory.

Fan et al., arXiv 2002.09402, v3 §4.2.1: "only the decoder is modified". Parameters carry fairseq's names.
"""

from argparse import SUPPRESS

import torch.nn as nn
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerDecoderBase, TransformerModelBase
from fairseq.models.transformer.transformer_legacy import (
    base_architecture,
    transformer_iwslt_de_en,
    transformer_wmt_en_de_big,
)
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.models.feedback_decoder_config import (
    UNSUPPORTED,
    FeedbackDecoderConfig,
    decoder_options,
    set_defaults,
)
from fb_fairseq.models.initialisation import initialise_if_asked
from fb_fairseq.models.layers import check_dictionary
from fb_fairseq.models.log_probs import DecodesLogProbs
from fb_fairseq.models.option_fields import accept_former_names
from fb_fairseq.models.pruning import SIDES, kept_layers, prune
from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.modules.holder import StackHolder
from fb_fairseq.ops.feedback.decoding import DecoderState


class FeedbackDecoder(DecodesLogProbs, StackHolder, TransformerDecoderBase):
    """Layers that attend to the feedback memory, then to the encoder, then feed forward.

    fairseq's decoder makes the layers, embeddings and output layer; a ``FeedbackTransformer`` on these layers does the
    rest. A step attends to all steps before it.
    """

    stack: FeedbackTransformer

    def __init__(self, cfg, dictionary, embed_tokens, no_encoder_attn=False, output_projection=None):
        self.options = decoder_options(cfg)
        self.memory_storage = str(cfg.memory_storage)
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn, output_projection)
        # By number: iterating over fairseq's list would drop some (LayerDrop).
        layers = [self.layers[l] for l in range(len(self.layers))]
        self.hold(FeedbackTransformer(self.options, layers))
        memory = self.stack.memory
        if memory.shared:
            for projection in (memory.k_proj, memory.v_proj):
                nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)  # as fairseq's attention
            for layer in layers:
                layer.self_attn.k_proj = layer.self_attn.v_proj = None

    def build_decoder_layer(self, cfg, no_encoder_attn):
        """One of fairseq's own layers, without its wrappers: the stack does not call it."""
        return TransformerDecoderLayerBase(cfg, no_encoder_attn)

    def forward(
        self,
        prev_output_tokens,
        encoder_out=None,
        incremental_state=None,
        features_only=False,
        src_lengths=None,
        **options,
    ):
        """Predict the next token at each position, as fairseq's ``TransformerDecoder.forward``.

        Args:
            prev_output_tokens, encoder_out, incremental_state, options: see ``extract_features``.
            features_only: return features instead of logits.
            src_lengths: fairseq's; not used.

        Returns:
            Logits [B, T, V], or with ``features_only`` features [B, T, D] (in decoding, of the new tokens only); and
            the dictionary of ``extract_features``.
        """
        features, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state, **options)
        return self.output(features, extra, incremental_state, features_only)

    def extract_features(
        self,
        prev_output_tokens,
        encoder_out=None,
        incremental_state=None,
        full_context_alignment=False,
        alignment_layer=None,
        alignment_heads=None,
        return_all_hiddens=False,
    ):
        """Run all but the output layer, as fairseq's ``TransformerDecoder.extract_features``. In decoding, that is for
        all tokens that the state has not seen yet.

        Args:
            prev_output_tokens: the targets so far [B, T], each sentence after ``</s>``; padding on the right.
            encoder_out: what fairseq's encoder returns; None: there is no encoder.
            incremental_state: a dictionary, which decoding step by step fills; None: whole targets are given.
            full_context_alignment: fairseq's; refused.
            alignment_layer: the layer whose attention to the encoder is returned, counted from 0.
            alignment_heads: average over so many of its heads; None: all.
            return_all_hiddens: also return the representations of all layers.

        Returns:
            Features [B, T, D], and a dictionary. ``attn``: a list with the attention to the encoder [B, T, C] of
            ``alignment_layer``, in decoding by default of the last layer; for whole targets None, unless that layer is
            given. ``inner_states``: with ``return_all_hiddens`` the embeddings and each layer's outputs, L + 1 times
            [T, B, D], otherwise None. In training both have gradients.
        """
        if full_context_alignment:
            raise UserError("--full-context-alignment: a feedback decoder cannot see future steps; leave it out")
        is_new = incremental_state is None or self.get_incremental_state(incremental_state, "feedback") is None
        # (Not in each step of decoding: this waits for a GPU.)
        if is_new and prev_output_tokens.size(1) > 1 and prev_output_tokens[:, 0].eq(self.padding_idx).any():
            raise UserError("--left-pad-target: a feedback decoder needs targets padded on the right; leave it out")
        if alignment_layer is None and incremental_state is not None:
            alignment_layer = self.options.decoder_layers - 1
        options = self.stack.loop_options(self.options.attention_span, alignment_layer, alignment_heads)
        aligned_BTC = states = None
        if incremental_state is not None:  # step by step
            if return_all_hiddens:
                raise UserError("return_all_hiddens: not in decoding; leave out incremental_state")
            state = self._state(encoder_out, incremental_state)
            x_TBD = self._embed(prev_output_tokens, state.ring.position).transpose(0, 1)
            y_TBD, aligned_BTC = self.stack.decode(x_TBD, state, options)
        else:  # whole targets
            x_TBD = self._embed(prev_output_tokens, 0).transpose(0, 1)
            out_CBD, padding_BC = encoder_output(encoder_out)
            encoder = [] if out_CBD is None else self.stack.encoder_contexts(out_CBD, padding_BC)
            inputs = self.stack.target_inputs(x_TBD, encoder, options)
            if return_all_hiddens or alignment_layer is not None:
                y_TBD, _, aligned_BTC, states = self.stack.run_reference_loop(inputs)
            else:
                y_TBD, _ = self.stack.run_loop(inputs)
        if self.layer_norm is not None:
            y_TBD = self.layer_norm(y_TBD)
        features = y_TBD.transpose(0, 1)
        if self.project_out_dim is not None:
            features = self.project_out_dim(features)
        if aligned_BTC is not None:
            aligned_BTC = aligned_BTC.contiguous()  # fairseq's criterion views it as [B x T, C]
        return features, {"attn": [aligned_BTC], "inner_states": states if return_all_hiddens else None}

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

    def _state(self, encoder_out, incremental_state) -> DecoderState:
        """The state of decoding; made at the first step."""
        state = self.get_incremental_state(incremental_state, "feedback")
        if state is None:
            ring = self.stack.new_ring(self.memory_storage)
            state = DecoderState(ring, *encoder_output(encoder_out), self.stack.encoder_contexts)
            self.set_incremental_state(incremental_state, "feedback", state)
        return state

    def reorder_incremental_state(self, incremental_state, new_order):
        """Take the rows in another order (beam search)."""
        state = self.get_incremental_state(incremental_state, "feedback")
        if state is not None:
            state.reorder(new_order)


@register_model("feedback_decoder")  # without a dataclass, as fairseq's: its command line cannot nest options
class FeedbackDecoderModel(TransformerModelBase):
    """Encoder-decoder for translation and summarization, with the options of fairseq's ``transformer``.

    ``torch.compile`` compiles what is before and after the step loop. ``torch.jit.script`` cannot compile the model: it
    supports neither ``autograd.Function``, which the loop uses, nor Python classes such as the decoding state.
    """

    @classmethod
    def add_args(cls, parser):
        """Add fairseq's options and this model's own. Architectures set the defaults."""
        gen_parser_from_dataclass(parser, FeedbackDecoderConfig(), delete_default=True, with_prefix="")
        accept_former_names(parser)
        for action in parser._actions:
            if action.dest in UNSUPPORTED:
                action.help = SUPPRESS  # --help does not offer what is refused

    @classmethod
    def build_model(cls, args, task):
        """Build a model; with ``--init-from-transformer`` its parameters are those of a checkpoint.

        Args:
            args: the options, of a command line or a checkpoint.
            task: fairseq's, with the two dictionaries.
        """
        if getattr(getattr(task, "cfg", None), "load_alignments", False):
            raise UserError("--load-alignments: a feedback decoder learns none; leave it out")
        feedback_decoder(args)
        cfg = FeedbackDecoderConfig.from_namespace(args)
        # Before fairseq fails without naming the option.
        decoder_options(cfg)
        for side in SIDES:
            kept_layers(args, side)
        model = super().build_model(cfg, task)
        initialise_if_asked(model, args)
        return model

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens):
        """Build the decoder."""
        return FeedbackDecoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    def forward(
        self,
        src_tokens,
        src_lengths,
        prev_output_tokens,
        return_all_hiddens: bool = False,
        features_only: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ):
        """Predict the next token of each target; see fairseq's ``TransformerModel.forward``.

        Args:
            src_tokens: [B, C]; ``src_lengths``: [B].
            prev_output_tokens: [B, T]; padding, if any, on the right.
            return_all_hiddens: also return the representations of the decoder's layers, by the reference loop, which is
                slower. (fairseq's default is True.)

        Returns:
            Logits [B, T, V], or with ``features_only`` features [B, T, D]; and the dictionary of
            ``FeedbackDecoder.extract_features``.
        """
        encoder_out = self.encoder(src_tokens, src_lengths)
        return self.decoder(
            prev_output_tokens,
            encoder_out=encoder_out,
            features_only=features_only,
            alignment_layer=alignment_layer,
            alignment_heads=alignment_heads,
            return_all_hiddens=return_all_hiddens,
        )

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """Load a checkpoint's parameters."""
        check_dictionary(state_dict, "encoder", self.encoder.dictionary, "dict.<source language>.txt")
        check_dictionary(state_dict, "decoder", self.decoder.dictionary, "dict.<target language>.txt")
        prune(state_dict, model_cfg)
        return super().load_state_dict(state_dict, strict, model_cfg, args)


def encoder_output(encoder_out: dict[str, list[Tensor]] | None) -> tuple[Tensor | None, Tensor | None]:
    """Output [C, B, D] and padding [B, C] in the dictionary that fairseq's encoder returns; None for what it lacks."""
    if encoder_out is None or not encoder_out["encoder_out"]:
        return None, None
    padding = encoder_out["encoder_padding_mask"]
    return encoder_out["encoder_out"][0], padding[0] if padding else None


@register_model_architecture("feedback_decoder", "feedback_decoder")
def feedback_decoder(args):
    """fairseq's base sizes; one projection of the memory for all layers."""
    set_defaults(args)
    base_architecture(args)


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
