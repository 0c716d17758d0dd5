"""``--arch streaming_lstm_lm``: the LSTM that the Feedback Transformer's paper compares with."""

from dataclasses import dataclass, fields

from fairseq.models import register_model

from fb_fairseq.errors import UserError
from fb_fairseq.models.language_model import LanguageModelConfig, LanguageModelDecoder, StreamingLanguageModel
from fb_fairseq.modules.lstm import LSTM, LSTMOptions


@dataclass
class StreamingLSTMLMConfig(LanguageModelConfig):
    pass


def lstm_options(cfg) -> LSTMOptions:
    """
    Raises:
        UserError: an option is out of range; the message names it.
    """
    try:
        return LSTMOptions(**{f.name: getattr(cfg, f.name) for f in fields(LSTMOptions)})
    except ValueError as error:
        raise UserError(str(error)) from None


class StreamingLSTMDecoder(LanguageModelDecoder, LSTM):
    stack_options = staticmethod(lstm_options)


@register_model("streaming_lstm_lm", dataclass=StreamingLSTMLMConfig)
class StreamingLSTMLanguageModel(StreamingLanguageModel):
    """LSTM language model on streams."""

    decoder_class = StreamingLSTMDecoder
