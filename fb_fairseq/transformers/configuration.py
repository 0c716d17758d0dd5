"""Configurations of the models in Hugging Face transformers."""

import difflib
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from transformers import PreTrainedConfig

from fb_fairseq.errors import UserError
from fb_fairseq.modules.language_model import STACKS
from fb_fairseq.modules.options import FEEDBACK_OPTIONS, CheckedOptions, EncoderOptions, TransformerOptions
from fb_fairseq.modules.words import WordOptions
from fb_fairseq.ops.feedback.ring import STORAGES
from fb_fairseq.symbols import EOS, PAD

Options = TypeVar("Options", bound=CheckedOptions)


# transformers' class is a dataclass. Type checkers take its fields for all arguments that there are, but it has others,
# too, such as our options, and gives them to ``__post_init__``.
if TYPE_CHECKING:
    DataclassConfig = Any
else:
    DataclassConfig = PreTrainedConfig

# The options of the decoder's layers. Those that are missing have one value only: see ``stack_options``.
STACK_OPTIONS = (
    "decoder_layers",
    "decoder_embed_dim",
    "decoder_ffn_embed_dim",
    "decoder_attention_heads",
    "decoder_normalize_before",
    "no_decoder_final_norm",
    "decoder_layerdrop",
    *FEEDBACK_OPTIONS,
)
WORD_OPTIONS = (
    "share_decoder_input_output_embed",
    "adaptive_softmax_cutoff",
    "adaptive_softmax_dropout",
    "adaptive_softmax_factor",
)


class OptionsConfig(DataclassConfig):
    """Base of the configurations: the options of ``fairseq-train``, by their Python names."""

    keys_to_ignore_at_inference = ["past_key_values", "cache"]  # the memory's names in old and new releases

    vocab_size: int = 260
    memory_storage: str = "keys-values"
    use_cache: bool = True
    # Models read </s> before a text, and write it after each line or text.
    bos_token_id: int = EOS
    eos_token_id: int = EOS
    pad_token_id: int = PAD

    tying: ClassVar[str]  # the options by which words are tied

    def __post_init__(self, **options):
        """Take our options; transformers takes what is left.

        First transformers' names are replaced by ours (``attribute_map``), so that an option is found by either; two
        different values are refused. Words are tied by our options, which are set by then; transformers reads
        ``tie_word_embeddings``. Names are checked before transformers' class keeps whatever it does not know, values
        when all fields are set.

        Args:
            options: the arguments that are no fields of the dataclass.
        """
        for standard, own in self.attribute_map.items():
            if standard in options:
                value = options.pop(standard)
                if options.setdefault(own, value) != value:
                    raise UserError(f"{standard} {value}: contradicts {own} {options[own]}; give one of them")
        for name, default in self.option_defaults().items():
            setattr(self, name, options.pop(name, default))
        tied = options.get("tie_word_embeddings")
        if tied is not None and bool(tied) != self.has_tied_words():
            raise UserError(f"tie_word_embeddings {tied}: contradicts the model's own options; give {self.tying}")
        options["tie_word_embeddings"] = self.has_tied_words()
        self.check_names(options)
        super().__post_init__(**options)
        if self.memory_storage not in STORAGES:
            raise UserError(f"memory_storage {self.memory_storage}: unknown; choose from {', '.join(STORAGES)}")
        self.check_options()

    @classmethod
    def option_defaults(cls) -> dict[str, Any]:
        """The options that are named in this package, with their defaults."""
        raise NotImplementedError

    def has_tied_words(self) -> bool:
        """Whether embeddings and output layer share parameters."""
        raise NotImplementedError

    def check_options(self) -> None:
        """Check all options."""
        raise NotImplementedError

    def check_names(self, names: Iterable[str]) -> None:
        """Refuse arguments that transformers would keep, and nobody read: other models' options, and ours misspelt.

        Args:
            names: those that are no fields, nor options of this model.
        """
        own = [*self.option_defaults(), *self.attribute_map, *(field.name for field in fields(self))]
        standard = dir(PreTrainedConfig())
        for name in names:
            if name in standard:
                continue
            if name in ALL_OPTIONS:
                raise UserError(f"{name}: is no option of {self.model_type}; leave it out")
            similar = difflib.get_close_matches(name, own, 1, 0.85)
            if similar:
                raise UserError(f"{name}: unknown; did you mean {similar[0]}?")

    def options_as(self, kind: type[Options], **others) -> Options:
        """The options as an object of a class.

        Args:
            kind: the class.
            others: its options that are no arguments of this configuration.
        """
        names = self.option_defaults()
        return kind(
            **{field.name: getattr(self, field.name) for field in fields(kind) if field.name in names}, **others
        )


class LanguageModelConfig(OptionsConfig):
    """Base of the language models' configurations.

    Options of the model's stack (see ``fb_fairseq.modules.options``) and those of ``WordOptions`` are further keyword
    arguments.

    Args:
        vocab_size: number of symbols, fairseq's special ones included.
        memory_storage: what generation stores for each step; see ``fb_fairseq.ops.feedback.ring.STORAGES``.
        labels: the model predicts a label of each token, which has the name of a token, instead of the next token.
        separate_sequences: with ``labels``, each sequence began with an empty memory in training.
        omit_eos: the model was trained on text without ``</s>`` at line ends.
    """

    labels: bool = False
    separate_sequences: bool = False
    omit_eos: bool = False
    tying = "share_decoder_input_output_embed or tie_adaptive_weights"
    attribute_map = {
        "hidden_size": "decoder_embed_dim",
        "intermediate_size": "decoder_ffn_embed_dim",
        "num_hidden_layers": "decoder_layers",
        "num_attention_heads": "decoder_attention_heads",
    }

    @classmethod
    def option_classes(cls) -> tuple[type[CheckedOptions], type[WordOptions]]:
        """The classes of the options of the stack, and of embeddings and output layer."""
        return STACKS[cls.model_type][1], WordOptions

    @classmethod
    def option_defaults(cls) -> dict[str, Any]:
        """See ``OptionsConfig``."""
        return {field.name: field.default for kind in cls.option_classes() for field in fields(kind)}

    def check_options(self) -> None:
        for kind in self.option_classes():
            self.options_as(kind)

    def has_tied_words(self) -> bool:
        return bool(self.share_decoder_input_output_embed or self.tie_adaptive_weights)


class FeedbackTransformerConfig(LanguageModelConfig):
    """Configuration of ``feedback_transformer_lm`` (arXiv 2002.09402)."""

    model_type = "feedback_transformer_lm"


class RelativeTransformerConfig(LanguageModelConfig):
    """Configuration of ``relative_transformer_lm``, the papers' Transformer."""

    model_type = "relative_transformer_lm"


class AllAttentionConfig(LanguageModelConfig):
    """Configuration of ``all_attention_lm`` (arXiv 1907.01470)."""

    model_type = "all_attention_lm"


class StreamingLSTMConfig(LanguageModelConfig):
    """Configuration of ``streaming_lstm_lm``, the LSTM that the papers compare with."""

    model_type = "streaming_lstm_lm"
    attribute_map = {"hidden_size": "decoder_embed_dim", "num_hidden_layers": "decoder_layers"}


CONFIGS = {
    config.model_type: config
    for config in (FeedbackTransformerConfig, RelativeTransformerConfig, AllAttentionConfig, StreamingLSTMConfig)
}


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
        memory_storage: what generation stores for each step; see ``fb_fairseq.ops.feedback.ring.STORAGES``.
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
        self.options_as(EncoderOptions)
        self.options_as(WordOptions)
        self.stack_options()
        sizes = (self.source_vocab_size, self.encoder_embed_dim), (self.vocab_size, self.decoder_embed_dim)
        if self.share_all_embeddings and sizes[0] != sizes[1]:
            raise UserError("share_all_embeddings: needs one dictionary, and encoder and decoder of the same width")

    def stack_options(self) -> TransformerOptions:
        """The options of the decoder's layers."""
        return self.options_as(TransformerOptions, attention_span=self.max_target_positions, relative_positions="none")


# Of all models together.
ALL_OPTIONS = {
    field.name
    for kind in (EncoderOptions, TransformerOptions, WordOptions, LanguageModelConfig, FeedbackDecoderConfig)
    for field in fields(kind)
}
