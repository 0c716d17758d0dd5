"""``--arch all_attention_lm``: Sukhbaatar et al., arXiv 1907.01470."""

from fairseq.models import register_model

from fb_fairseq.models.language_model import AttentionLanguageModel, AttentionLMConfig
from fb_fairseq.models.layers import described, with_options
from fb_fairseq.modules import AllAttention
from fb_fairseq.modules.options import TransformerOptions

FIELDS = ("persistent_memory_variant", "persistent_memory_lr_scale")


@with_options(described(TransformerOptions, *FIELDS, persistent_memory_size=1024))
class AllAttentionLMConfig(AttentionLMConfig):
    """Options of ``all_attention_lm``."""


@register_model("all_attention_lm", dataclass=AllAttentionLMConfig)
class AllAttentionLanguageModel(AttentionLanguageModel):
    """Language model of attention layers only, with persistent vectors in place of feed-forward sublayers (§4.2)."""

    config_class = AllAttentionLMConfig
    stack_class = AllAttention
