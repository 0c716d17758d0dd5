"""Small language models."""

import argparse

import torch

from fb_fairseq.models import language_models
from fb_fairseq.models.checkpoints import plain_options
from fb_fairseq.pretrained.model import LanguageModel
from fb_fairseq.pretrained.model import build as build_plain
from fb_fairseq.trained_model import TrainedModel
from tests.models.decoders import dictionary
from tests.modules.options import randomise

FeedbackLM, RelativeLM = (
    language_models.FeedbackTransformerLanguageModel,
    language_models.RelativeTransformerLanguageModel,
)
AllAttentionLM = language_models.AllAttentionLanguageModel
MODELS = {
    FeedbackLM: language_models.FeedbackTransformerLMConfig,
    RelativeLM: language_models.RelativeTransformerLMConfig,
    AllAttentionLM: language_models.AllAttentionLMConfig,
}
NAMES = {
    FeedbackLM: "feedback_transformer_lm",
    RelativeLM: "relative_transformer_lm",
    AllAttentionLM: "all_attention_lm",
}

WIDTHS = dict(decoder_layers=2, decoder_embed_dim=12, decoder_ffn_embed_dim=20, decoder_attention_heads=3)
SIZES = dict(**WIDTHS, attention_span=5, tokens_per_sample=30)


def configuration(model, **changes):
    """The options of a class of models: ``SIZES`` with these changes."""
    sizes = {**SIZES, **changes}
    if model is AllAttentionLM:
        sizes = {**sizes, "persistent_memory_size": 7}
        del sizes["decoder_ffn_embed_dim"]
    return MODELS[model](**sizes)


def build(model, task=None, **changes):
    """A model of a class as it is initialised, in training; without a task with a dictionary of 20 words."""
    words = dictionary(20)
    task = task or argparse.Namespace(source_dictionary=words, target_dictionary=words)
    return model.build_model(configuration(model, **changes), task)


def plain(built, cfg, arch=None) -> LanguageModel:
    """A model of fairseq in plain PyTorch, as commands read it from a checkpoint."""
    arch = arch or NAMES[type(built)]
    options = {**plain_options(vars(cfg)), "arch": arch}
    return build_plain(TrainedModel("a.pt", options, built.state_dict(), symbols={"dict.txt": dictionary(20).symbols}))


def both(model=FeedbackLM, **changes):
    """A model with random weights, as commands read it, and as fairseq has it."""
    torch.manual_seed(1)
    built = build(model, **changes).eval()
    randomise(built)
    return plain(built, configuration(model, **changes)), built


def tokens(batch, steps):
    """Random words [B, T] of the dictionary of 20."""
    return torch.randint(4, 24, (batch, steps))
