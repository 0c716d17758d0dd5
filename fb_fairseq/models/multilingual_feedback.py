"""``--arch multilingual_feedback_decoder``: fairseq's ``multilingual_transformer`` with feedback decoders.

For ``--task multilingual_translation``: an encoder for each source language and a decoder for each target language, or
shared ones."""

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.multilingual_transformer import MultilingualTransformerModel, base_multilingual_architecture

from fb_fairseq.errors import UserError, flag
from fb_fairseq.models.feedback_decoder import FeedbackDecoder
from fb_fairseq.models.feedback_decoder_config import LAYERS_TO_KEEP, FeedbackConfig, decoder_options, set_defaults
from fb_fairseq.models.layers import check_dictionary


@register_model("multilingual_feedback_decoder")
class MultilingualFeedbackDecoderModel(MultilingualTransformerModel):
    """Encoder-decoders of several pairs of languages, each with the options of ``feedback_decoder``.

    They cannot start from a vanilla Transformer, nor keep some of a checkpoint's layers (fairseq's cannot either)."""

    @staticmethod
    def add_args(parser):
        """Add the options of fairseq's ``multilingual_transformer``, and the feedback decoder's own."""
        MultilingualTransformerModel.add_args(parser)
        # Of the options that are there already, this adds none.
        gen_parser_from_dataclass(parser, FeedbackConfig(), delete_default=True, with_prefix="")

    @classmethod
    def build_model(cls, args, task):
        """Build a model for the task's pairs of languages; in evaluation that is one."""
        multilingual_feedback_decoder(args)
        for name in LAYERS_TO_KEEP:
            if getattr(args, name):
                raise UserError(f"{flag(name)}: --arch multilingual_feedback_decoder does not support it; leave it out")
        decoder_options(FeedbackConfig.from_namespace(args))
        pairs = super().build_model(args, task).models  # fairseq's own class, whatever ``cls`` is
        encoders = {pair: model.encoder for pair, model in pairs.items()}
        return cls(encoders, {pair: model.decoder for pair, model in pairs.items()})

    @classmethod
    def _get_module_class(cls, is_encoder, args, lang_dict, embed_tokens, langs):
        """A language's encoder or decoder. (A module, in spite of the name that fairseq gives this.)"""
        if is_encoder:
            return super()._get_module_class(is_encoder, args, lang_dict, embed_tokens, langs)
        cfg = FeedbackConfig.from_namespace(args)
        return FeedbackDecoder(cfg, lang_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    def load_state_dict(self, state_dict, strict=True, model_cfg=None):
        """Load a checkpoint's parameters, of the pairs of languages that this model has."""
        for pair, model in self.models.items():
            for side, language in zip(("encoder", "decoder"), pair.split("-")):
                dictionary = getattr(model, side).dictionary
                check_dictionary(state_dict, f"models.{pair}.{side}", dictionary, f"dict.{language}.txt")
        return super().load_state_dict(state_dict, strict, model_cfg)


@register_model_architecture("multilingual_feedback_decoder", "multilingual_feedback_decoder")
def multilingual_feedback_decoder(args):
    """fairseq's base sizes; one projection of the memory for all layers of a decoder."""
    set_defaults(args)
    base_multilingual_architecture(args)
