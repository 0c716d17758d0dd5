"""``--arch relative_transformer_lm``: the papers' own baseline, parallel over the block."""

from dataclasses import dataclass

from fairseq.models import register_model

from fb_fairseq.models.language_model import LanguageModelDecoder, StreamingLanguageModel, TransformerLMConfig
from fb_fairseq.modules import RelativeTransformer


@dataclass
class RelativeTransformerLMConfig(TransformerLMConfig):
    pass


class RelativeTransformerDecoder(LanguageModelDecoder, RelativeTransformer):
    pass


@register_model("relative_transformer_lm", dataclass=RelativeTransformerLMConfig)
class RelativeTransformerLanguageModel(StreamingLanguageModel):
    """Transformer language model with cached context and relative positions (v3 §3.1, §7.6)."""

    decoder_class = RelativeTransformerDecoder
