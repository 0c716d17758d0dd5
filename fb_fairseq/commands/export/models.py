"""Language and translation models for transformers."""

import os
from typing import Any

from fb_fairseq.commands.export.source import Source, load_parameters
from fb_fairseq.errors import UserError


def build_language_model(source: Source, card: dict[str, Any]):
    """A language model, its tokenizer, and what its card says. ``card``: what is known of the model already, as
    arguments of ``CardFacts``."""
    from fb_fairseq.byte_codec import is_byte_dictionary
    from fb_fairseq.transformers import CONFIGS
    from fb_fairseq.transformers.card import CardFacts
    from fb_fairseq.transformers.configuration import BOS, PAD, UNK
    from fb_fairseq.transformers.modeling import MODELS
    from fb_fairseq.transformers.tokenizers import build_tokenizer

    options, dictionary = source.options, source.dictionary("dict.txt", "decoder")
    if options.get("relative_positions") == "none" and options.get("decoder_learned_pos"):
        raise UserError(
            f"{source.path}: its learned positions end; only models for texts of any length can be exported"
        )
    kind = CONFIGS[source.architecture]
    config = kind(
        vocab_size=len(dictionary),
        memory_storage=str(options.get("memory_storage", "keys-values")),
        **source.values(kind.option_defaults()),
    )
    model = MODELS[config.model_type](config)
    load_parameters(source, model)
    model.generation_config.suppress_tokens = [BOS, PAD, UNK]  # as python -m fb_fairseq generate does
    facts = CardFacts(
        architecture=config.model_type,
        layers=config.decoder_layers,
        width=config.decoder_embed_dim,
        feed_forward=None
        if config.model_type.startswith("all_att")
        else getattr(config, "decoder_ffn_embed_dim", None),
        persistent_vectors=getattr(config, "persistent_memory_size", 0) or None,
        heads=getattr(config, "decoder_attention_heads", None),
        span=getattr(config, "attention_span", None),
        adaptive_span=getattr(config, "adaptive_span", False),
        parameters=sum(p.numel() for p in model.parameters()),
        reads="bytes" if is_byte_dictionary(dictionary) else "subwords" if source.codes else "words",
        vocabulary=config.vocab_size,
        **card,
    )
    return model, {"": build_tokenizer(dictionary.symbols, source.codes)}, facts


BEAMS, LONGEST = 5, 200  # fairseq-generate's --beam and --max-len-b
LONGEST_TARGET = 1024  # fairseq's --max-target-positions


def check(source: Source) -> None:
    """Check that the model has a counterpart in transformers."""
    options = source.options
    width = options.get("decoder_output_dim")
    if options.get("no_cross_attention"):
        raise UserError(f"{source.path}: trained with --no-cross-attention, which cannot be exported")
    if width not in (None, options.get("decoder_embed_dim")):
        raise UserError(f"{source.path}: trained with --decoder-output-dim {width}, which cannot be exported")


def read_languages(source: Source) -> tuple[str, str]:
    """Source and target language: as given, as fairseq-train was told, or as it found them in the data folder."""
    from fairseq.data.data_utils import infer_language_pair

    saved = source.task.get("source_lang"), source.task.get("target_lang")
    languages = [given or trained for given, trained in zip(source.languages, saved)]
    if None in languages and os.path.isdir(source.data):
        languages = [known or found for known, found in zip(languages, infer_language_pair(source.data))]
    if None in languages:
        raise UserError(
            f"{source.path}: does not say its languages, nor does its data folder {source.data}; give --source-lang "
            "and --target-lang"
        )
    return languages[0], languages[1]


def build_translation(source: Source, card: dict[str, Any]):
    """A translation model, its tokenizers, and what its card says. ``card``: what is known of the model already, as
    arguments of ``CardFacts``."""
    from fb_fairseq.transformers.card import TARGET_FOLDER, CardFacts
    from fb_fairseq.transformers.configuration import PAD, FeedbackDecoderConfig
    from fb_fairseq.transformers.seq2seq import FeedbackDecoderForConditionalGeneration
    from fb_fairseq.transformers.tokenizers import build_tokenizer

    check(source)
    options = source.options
    languages = read_languages(source)
    sides = zip(languages, ("encoder", "decoder"))
    dictionaries = [source.dictionary(f"dict.{language}.txt", side) for language, side in sides]
    values = source.values(FeedbackDecoderConfig.option_defaults())
    if values.get("adaptive_softmax_cutoff"):
        values["share_decoder_input_output_embed"] = False  # fairseq ignores it then
    values["activation_dropout"] = options.get("activation_dropout") or options.get("relu_dropout") or 0.0
    config = FeedbackDecoderConfig(
        source_vocab_size=len(dictionaries[0]),
        vocab_size=len(dictionaries[1]),
        share_all_embeddings=bool(options.get("share_all_embeddings")),
        decoder_learned_pos=bool(options.get("decoder_learned_pos")),
        max_target_positions=int(options.get("max_target_positions") or LONGEST_TARGET),
        source_lang=languages[0],
        target_lang=languages[1],
        memory_storage=str(options.get("memory_storage", "keys-values")),
        **values,
    )
    model = FeedbackDecoderForConditionalGeneration(config)
    load_parameters(source, model)
    longest = min(LONGEST + 1, config.max_target_positions)  # with the </s> at the beginning
    model.generation_config.update(num_beams=BEAMS, early_stopping=True, max_length=longest, suppress_tokens=[PAD])
    tokenizers = {"": build_tokenizer(dictionaries[0].symbols, source.codes, after_text=True)}
    if dictionaries[0] != dictionaries[1]:
        tokenizers[TARGET_FOLDER] = build_tokenizer(dictionaries[1].symbols, source.codes, after_text=True)
    facts = CardFacts(
        architecture=config.model_type,
        languages=" → ".join(languages),
        encoder_layers=config.encoder_layers,
        layers=config.decoder_layers,
        width=config.decoder_embed_dim,
        feed_forward=config.decoder_ffn_embed_dim,
        heads=config.decoder_attention_heads,
        parameters=sum(p.numel() for p in model.parameters()),
        reads="subwords" if source.codes else "words",
        vocabulary=config.vocab_size,
        separate_tokenizers=len(tokenizers) > 1,
        **card,
    )
    return model, tokenizers, facts
