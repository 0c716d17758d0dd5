"""Small language models."""

import argparse

import torch
from fairseq.data import Dictionary

from fb_fairseq.models.architectures import (
    AllAttentionLanguageModel,
    AllAttentionLMConfig,
    FeedbackTransformerLanguageModel,
    FeedbackTransformerLMConfig,
    RelativeTransformerLanguageModel,
    RelativeTransformerLMConfig,
)

MODELS = {
    FeedbackTransformerLanguageModel: FeedbackTransformerLMConfig,
    RelativeTransformerLanguageModel: RelativeTransformerLMConfig,
    AllAttentionLanguageModel: AllAttentionLMConfig,
}


SIZES = dict(
    decoder_layers=2,
    decoder_embed_dim=12,
    decoder_ffn_embed_dim=20,
    decoder_attention_heads=3,
    attention_span=5,
    tokens_per_sample=30,
)


def dictionary(words=20):
    result = Dictionary()
    for i in range(words):
        result.add_symbol(f"word{i}")
    return result


def build(model, task=None, **changes):
    sizes = {**SIZES, **changes}
    if model is AllAttentionLanguageModel:
        sizes = {**sizes, "persistent_memory_size": 7}
        del sizes["decoder_ffn_embed_dim"]
    cfg = MODELS[model](**sizes)
    words = dictionary()
    return model.build_model(cfg, task or argparse.Namespace(source_dictionary=words, target_dictionary=words))


def tokens(batch, steps):
    return torch.randint(4, 24, (batch, steps))
