"""Small translation models."""

import argparse

import torch
from fairseq.data import Dictionary

from fb_fairseq.models.feedback_decoder import FeedbackDecoderModel

PAD = 1


SIZES = dict(
    encoder_layers=2,
    encoder_embed_dim=12,
    encoder_ffn_embed_dim=20,
    encoder_attention_heads=3,
    decoder_layers=3,
    decoder_embed_dim=12,
    decoder_ffn_embed_dim=18,
    decoder_attention_heads=2,
    dropout=0.0,
    max_source_positions=60,
    max_target_positions=1100,
)


def dictionary(words=20):
    """So many words after fairseq's special symbols."""
    made = Dictionary()
    for word in range(words):
        made.add_symbol(f"word{word}")
    return made


def initialised(model=FeedbackDecoderModel, **changes):
    """A model in evaluation. ``changes``: options in place of those of ``SIZES``."""
    task = argparse.Namespace(source_dictionary=dictionary(11), target_dictionary=dictionary(14))
    return model.build_model(argparse.Namespace(**{**SIZES, **changes}), task).eval()


def build(model=FeedbackDecoderModel, **changes):
    """One of ``initialised``, all of whose parameters are moved at random, norms and biases too."""
    made = initialised(model, **changes)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def batch(lengths):
    """Random sentences of these lengths, padded on the right."""
    tokens = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        tokens[row, :length] = torch.randint(4, 15, (length,))
    return tokens
