"""``--arch relative_transformer_lm``: the papers' own baseline, parallel over the block."""

from dataclasses import dataclass

from fairseq.models import register_model

from fb_fairseq.models.language_model import TransformerLanguageModel, TransformerLMConfig
from fb_fairseq.modules import RelativeTransformer


@dataclass
class RelativeTransformerLMConfig(TransformerLMConfig):
    """Options of ``relative_transformer_lm``."""


@register_model("relative_transformer_lm", dataclass=RelativeTransformerLMConfig)
class RelativeTransformerLanguageModel(TransformerLanguageModel):
    """Transformer language model with cached context and relative positions (v3 §3.1, §7.6)."""

    config_class = RelativeTransformerLMConfig
    stack_class = RelativeTransformer
