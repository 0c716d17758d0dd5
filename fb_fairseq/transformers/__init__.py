"""The models in Hugging Face transformers. Importing this registers them with the auto classes::

    import fb_fairseq.transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(DIR)  # written by fb-fairseq export
    tokenizer = AutoTokenizer.from_pretrained(DIR)

``AutoModelForSeq2SeqLM`` loads translation models, ``AutoModelForTokenClassification`` those that predict labels.
fairseq is not needed.

    configuration.py         what config.json holds
    modeling.py              language models; memory_model.py: the base class of all models
    seq2seq.py               the translation model; seq2seq_parts.py: its encoder and decoder
    decoder.py               a language model's embeddings, layers and output layer; attention.py: its attention
    losses.py                the loss for labels
    cache.py                 their memory, as ``past_key_values``; known_text.py: the text that one has read
    call_memory.py           the memory of a call, and what becomes of it
    inputs.py                what a call says about its tokens: padding, packed texts, and whether it fits the memory
    streams.py               training on streams with ``Trainer``
    trainer.py               what ``Trainer`` does with losses
    tokenizers.py            tokenizers of fairseq's dictionaries
    card.py                  the model card of an export
    broken_torchaudio.py     a torchaudio that cannot be imported
"""

from fb_fairseq.packages import missing_package

try:
    from fb_fairseq.transformers import broken_torchaudio  # noqa: F401  before anything of transformers
except ImportError as error:
    raise ImportError(missing_package(error) or str(error), name=error.name) from None

# isort: split
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForTokenClassification

from fb_fairseq.errors import UserError
from fb_fairseq.transformers.cache import DecoderCache, StreamCache
from fb_fairseq.transformers.configuration import (
    CONFIGS,
    AllAttentionConfig,
    FeedbackDecoderConfig,
    FeedbackTransformerConfig,
    LanguageModelConfig,
    RelativeTransformerConfig,
    StreamingLSTMConfig,
)
from fb_fairseq.transformers.modeling import (
    MODELS,
    AllAttentionForCausalLM,
    FeedbackTransformerForCausalLM,
    FeedbackTransformerForTokenClassification,
    LanguageModel,
    RelativeTransformerForCausalLM,
    StreamingLSTMForCausalLM,
)
from fb_fairseq.transformers.seq2seq import FeedbackDecoderForConditionalGeneration


def register() -> None:
    """Register the models with transformers' auto classes."""
    for name, config in CONFIGS.items():
        AutoConfig.register(name, config, exist_ok=True)
        AutoModelForCausalLM.register(config, MODELS[name], exist_ok=True)
    AutoModelForTokenClassification.register(
        FeedbackTransformerConfig, FeedbackTransformerForTokenClassification, exist_ok=True
    )
    AutoConfig.register(FeedbackDecoderConfig.model_type, FeedbackDecoderConfig, exist_ok=True)
    AutoModelForSeq2SeqLM.register(FeedbackDecoderConfig, FeedbackDecoderForConditionalGeneration, exist_ok=True)


register()

__all__ = [
    "AllAttentionConfig",
    "AllAttentionForCausalLM",
    "DecoderCache",
    "FeedbackDecoderConfig",
    "FeedbackDecoderForConditionalGeneration",
    "FeedbackTransformerConfig",
    "FeedbackTransformerForCausalLM",
    "FeedbackTransformerForTokenClassification",
    "LanguageModel",
    "LanguageModelConfig",
    "RelativeTransformerConfig",
    "RelativeTransformerForCausalLM",
    "StreamCache",
    "StreamingLSTMConfig",
    "StreamingLSTMForCausalLM",
    "UserError",
]
