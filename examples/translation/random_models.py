"""Models with random parameters, whose speed the scripts in this folder measure."""

import argparse
from typing import Dict, NamedTuple, Type

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel, TransformerModelBase

from fb_fairseq import patches  # noqa: F401  before fairseq is used
from fb_fairseq.models.feedback_decoder import FeedbackDecoderModel


class Kind(NamedTuple):
    """A model and the options that it is built with."""

    model: Type[TransformerModelBase]
    options: Dict[str, str]


MODELS = {
    "vanilla": Kind(TransformerModel, {}),
    "feedback, shared": Kind(FeedbackDecoderModel, {"memory_projections": "shared"}),
    "feedback, per-layer": Kind(FeedbackDecoderModel, {"memory_projections": "per-layer"}),
}
WITHOUT_NATIVE_LOOP = Kind(FeedbackDecoderModel, {"memory_projections": "shared", "step_loop": "fast"})


def dictionary(size: int) -> Dictionary:
    """A dictionary with so many symbols, four of them special."""
    words = Dictionary()
    for word in range(size - words.nspecial):
        words.add_symbol(f"w{word}")
    return words


def random_model(kind: Kind, layers: int, args: argparse.Namespace, words: Dictionary, **options) -> torch.nn.Module:
    """Build a model on the device.

    Args:
        layers: number of decoder layers.
        args: ``embed_dim``, ``ffn_dim``, ``heads`` and ``device``.
        options: further options of the model.
    """
    sizes = argparse.Namespace(
        decoder_layers=layers,
        encoder_embed_dim=args.embed_dim,
        encoder_ffn_embed_dim=args.ffn_dim,
        encoder_attention_heads=args.heads,
        decoder_attention_heads=args.heads,
        share_all_embeddings=True,
        max_source_positions=1024,
        max_target_positions=1024,
        **kind.options,
        **options,
    )
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words)
    return kind.model.build_model(sizes, task).to(args.device)
