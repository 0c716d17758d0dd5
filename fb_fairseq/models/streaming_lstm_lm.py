"""``--arch streaming_lstm_lm``: the LSTM that the Feedback Transformer's paper compares with."""

from dataclasses import dataclass

from fairseq.models import register_model

from fb_fairseq.models.language_model import LanguageModelConfig, StreamingLanguageModel
from fb_fairseq.modules.lstm import LSTM, LSTMOptions


@dataclass
class StreamingLSTMLMConfig(LanguageModelConfig):
    """Options of ``streaming_lstm_lm``."""


@register_model("streaming_lstm_lm", dataclass=StreamingLSTMLMConfig)
class StreamingLSTMLanguageModel(StreamingLanguageModel):
    """LSTM language model on streams."""

    config_class = StreamingLSTMLMConfig
    stack_class = LSTM
    options_class = LSTMOptions
