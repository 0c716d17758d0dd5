"""Language models for transformers."""

from typing import Any

from fb_fairseq.commands.export.source import Source, load_parameters
from fb_fairseq.errors import UserError


def build_language_model(source: Source, card: dict[str, Any]):
    """A language model, its tokenizer, and what its card says.

    Args:
        card: what is known of the model already, as arguments of ``CardFacts``.
    """
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
