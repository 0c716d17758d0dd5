"""Small language models."""

import argparse

import torch

from fb_fairseq.models import architectures
from tests.models.decoders import dictionary

FeedbackLM, RelativeLM = architectures.FeedbackTransformerLanguageModel, architectures.RelativeTransformerLanguageModel
AllAttentionLM = architectures.AllAttentionLanguageModel
MODELS = {
    FeedbackLM: architectures.FeedbackTransformerLMConfig,
    RelativeLM: architectures.RelativeTransformerLMConfig,
    AllAttentionLM: architectures.AllAttentionLMConfig,
}

WIDTHS = dict(decoder_layers=2, decoder_embed_dim=12, decoder_ffn_embed_dim=20, decoder_attention_heads=3)
SIZES = dict(**WIDTHS, attention_span=5, tokens_per_sample=30)


def build(model, task=None, **changes):
    sizes = {**SIZES, **changes}
    if model is AllAttentionLM:
        sizes = {**sizes, "persistent_memory_size": 7}
        del sizes["decoder_ffn_embed_dim"]
    cfg = MODELS[model](**sizes)
    words = dictionary(20)
    return model.build_model(cfg, task or argparse.Namespace(source_dictionary=words, target_dictionary=words))


def tokens(batch, steps):
    return torch.randint(4, 24, (batch, steps))
