"""The language models in Hugging Face transformers. Importing this registers them with the auto classes::

    import fb_fairseq.transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(DIR)  # written by python -m fb_fairseq export
    tokenizer = AutoTokenizer.from_pretrained(DIR)

fairseq is not needed.
"""

from transformers import AutoConfig, AutoModelForCausalLM

from fb_fairseq.transformers.cache import StreamCache
from fb_fairseq.transformers.configuration import (
    CONFIGS,
    AllAttentionConfig,
    FeedbackTransformerConfig,
    LanguageModelConfig,
    RelativeTransformerConfig,
    StreamingLSTMConfig,
)
from fb_fairseq.transformers.modeling import (
    MODELS,
    AllAttentionForCausalLM,
    FeedbackTransformerForCausalLM,
    LanguageModel,
    RelativeTransformerForCausalLM,
    StreamingLSTMForCausalLM,
)

for _name, _config in CONFIGS.items():
    AutoConfig.register(_name, _config, exist_ok=True)
    AutoModelForCausalLM.register(_config, MODELS[_name], exist_ok=True)

__all__ = [
    "AllAttentionConfig",
    "AllAttentionForCausalLM",
    "FeedbackTransformerConfig",
    "FeedbackTransformerForCausalLM",
    "LanguageModel",
    "LanguageModelConfig",
    "RelativeTransformerConfig",
    "RelativeTransformerForCausalLM",
    "StreamCache",
    "StreamingLSTMConfig",
    "StreamingLSTMForCausalLM",
]
