"""The configuration of the translation model in Hugging Face transformers."""

from dataclasses import fields
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.modules.encoder import EncoderOptions
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.words import WordOptions
from fb_fairseq.transformers.configuration import EOS, OptionsConfig

# The options of the decoder's layers. What is missing has one value only: see ``stack_options``.
STACK_OPTIONS = (
    *("decoder_layers", "decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_attention_heads"),
    *("decoder_normalize_before", "no_decoder_final_norm", "decoder_layerdrop"),
    *(
        "memory_composition",
        "memory_projections",
        "step_loop",
        "step_loop_recompute",
        "parallel_passes",
        "parallel_tolerance",
    ),
)
WORD_OPTIONS = (
    "share_decoder_input_output_embed",
    *("adaptive_softmax_cutoff", "adaptive_softmax_dropout", "adaptive_softmax_factor"),
)


class FeedbackDecoderConfig(OptionsConfig):
    """Configuration of ``feedback_decoder`` (arXiv 2002.09402): a Transformer encoder, a decoder with feedback memory.

    The options of ``EncoderOptions``, ``STACK_OPTIONS`` and ``WORD_OPTIONS`` are further keyword arguments.

    Args:
        vocab_size: number of symbols of the target language, fairseq's special ones included.
        source_vocab_size: the same of the source language.
        share_all_embeddings: both languages and the output layer share the embeddings.
        decoder_learned_pos: learned positions in the decoder, not sinusoidal ones.
        max_target_positions: longest target, in tokens.
        source_lang, target_lang: their names, as in ``dict.de.txt``.
        memory_storage: what generation stores for each step; see ``fb_fairseq.ops.feedback.decoding.storage.STORAGES``.
    """

    model_type = "feedback_decoder"
    tying = "share_decoder_input_output_embed or share_all_embeddings"
    attribute_map = {
        "hidden_size": "decoder_embed_dim",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "decoder_attention_heads",
    }

    source_vocab_size: int = 260
    share_all_embeddings: bool = False
    decoder_learned_pos: bool = False
    max_target_positions: int = 1024
    source_lang: str = ""
    target_lang: str = ""
    is_encoder_decoder: bool = True
    decoder_start_token_id: int = EOS

    @classmethod
    def option_defaults(cls) -> dict[str, Any]:
        defaults = {field.name: field.default for field in fields(EncoderOptions)}
        for kind, names in ((TransformerOptions, STACK_OPTIONS), (WordOptions, WORD_OPTIONS)):
            defaults.update({field.name: field.default for field in fields(kind) if field.name in names})
        return defaults

    def has_tied_words(self) -> bool:
        return bool(self.share_decoder_input_output_embed or self.share_all_embeddings)

    def check_options(self) -> None:
        if self.max_target_positions < 1:
            raise UserError(f"max_target_positions {self.max_target_positions}: must be 1 or more")
        self.options_of(EncoderOptions)
        self.options_of(WordOptions)
        self.stack_options()
        sizes = (self.source_vocab_size, self.encoder_embed_dim), (self.vocab_size, self.decoder_embed_dim)
        if self.share_all_embeddings and sizes[0] != sizes[1]:
            raise UserError("share_all_embeddings: needs one dictionary, and encoder and decoder of the same width")

    def stack_options(self) -> TransformerOptions:
        """The options of the decoder's layers."""
        return self.options_of(TransformerOptions, attention_span=self.max_target_positions, relative_positions="none")
