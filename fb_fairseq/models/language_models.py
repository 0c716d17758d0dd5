"""The language models on streams, as fairseq knows them."""

from dataclasses import dataclass

from fairseq.models import register_model

from fb_fairseq.models.language_model import (
    AttentionLMConfig,
    LanguageModelConfig,
    StreamingLanguageModel,
    TransformerLMConfig,
)
from fb_fairseq.models.option_fields import described, with_options
from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer
from fb_fairseq.modules.lstm import LSTM, LSTMOptions
from fb_fairseq.modules.options import FEEDBACK_OPTIONS, TransformerOptions


@with_options(described(TransformerOptions, *FEEDBACK_OPTIONS))
class FeedbackTransformerLMConfig(TransformerLMConfig):
    """Options of ``feedback_transformer_lm``."""


@register_model("feedback_transformer_lm", dataclass=FeedbackTransformerLMConfig)
class FeedbackTransformerLanguageModel(StreamingLanguageModel):
    """Feedback Transformer language model (v3 §3.3).

    ``torch.compile`` compiles what is before and after the step loop; ``torch.jit.script`` cannot compile the model,
    because it does not support ``autograd.Function``, which the loop uses.
    """

    stack_class = FeedbackTransformer


@dataclass
class RelativeTransformerLMConfig(TransformerLMConfig):
    """Options of ``relative_transformer_lm``."""


@register_model("relative_transformer_lm", dataclass=RelativeTransformerLMConfig)
class RelativeTransformerLanguageModel(StreamingLanguageModel):
    """Transformer language model with cached context and relative positions (v3 §3.1, §7.6)."""

    stack_class = RelativeTransformer


@with_options(described(TransformerOptions, "persistent_memory_variant", persistent_memory_size=1024))
class AllAttentionLMConfig(AttentionLMConfig):
    """Options of ``all_attention_lm``."""


@register_model("all_attention_lm", dataclass=AllAttentionLMConfig)
class AllAttentionLanguageModel(StreamingLanguageModel):
    """Language model of attention layers only, with persistent vectors in place of feed-forward sublayers (§4.2)."""

    stack_class = AllAttention


@dataclass
class StreamingLSTMLMConfig(LanguageModelConfig):
    """Options of ``streaming_lstm_lm``."""


@register_model("streaming_lstm_lm", dataclass=StreamingLSTMLMConfig)
class StreamingLSTMLanguageModel(StreamingLanguageModel):
    """LSTM language model on streams."""

    stack_class = LSTM
    options_class = LSTMOptions
