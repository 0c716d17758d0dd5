"""``--arch all_attention_lm``: Sukhbaatar et al., arXiv 1907.01470."""

from dataclasses import dataclass

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model

from fb_fairseq.models.language_model import (
    AttentionLMConfig,
    LanguageModelDecoder,
    StreamingLanguageModel,
    option,
)
from fb_fairseq.modules import AllAttention
from fb_fairseq.modules.options import PERSISTENT_MEMORY_VARIANTS


@dataclass
class AllAttentionLMConfig(AttentionLMConfig):
    persistent_memory_size: int = option(1024, "number of persistent key and value vectors of each head and layer")
    persistent_memory_variant: ChoiceEnum(list(PERSISTENT_MEMORY_VARIANTS)) = option(
        "all-attn",
        "all-attn: one softmax over context and persistent vectors; attn-split: one each; head-split: half of the heads "
        "each; single-head: as attn-split, all heads' vectors in one; ff-attn: as single-head, a sublayer of its own",
    )


class AllAttentionDecoder(LanguageModelDecoder, AllAttention):
    pass


@register_model("all_attention_lm", dataclass=AllAttentionLMConfig)
class AllAttentionLanguageModel(StreamingLanguageModel):
    """Language model of attention layers only, with persistent vectors for feed-forward sublayers (§4.2)."""

    decoder_class = AllAttentionDecoder
