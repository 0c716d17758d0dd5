"""fairseq's models and the feedback decoder with random parameters."""

import argparse
from typing import NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel, TransformerModelBase
from torch import Tensor

from fb_fairseq import patches  # noqa: F401  before fairseq is used
from fb_fairseq.models.feedback_decoder import FeedbackDecoderModel
from fb_fairseq.ops.feedback.loops import REFERENCE
from fb_fairseq.papers.benchmark.tasks import PER_LAYER, SHARED, TRANSFORMER


class Kind(NamedTuple):
    """A model of translation.

    Attributes:
        model: its class.
        options: that it is built with, beside its sizes.
    """

    model: type[TransformerModelBase]
    options: dict[str, str]


MODELS = {
    TRANSFORMER: Kind(TransformerModel, {}),
    SHARED: Kind(FeedbackDecoderModel, {"memory_projections": "shared"}),
    PER_LAYER: Kind(FeedbackDecoderModel, {"memory_projections": "per-layer"}),
}
WITHOUT_CPP_LOOP = Kind(FeedbackDecoderModel, {"memory_projections": "shared", "step_loop": REFERENCE})


def dictionary(size: int) -> Dictionary:
    """A dictionary with so many symbols, four of them special."""
    words = Dictionary()
    for word in range(size - words.nspecial):
        words.add_symbol(f"w{word}")
    return words


def random_words(words: Dictionary, *shape: int, device: str) -> Tensor:
    """Random symbols of a dictionary, none of them special."""
    return torch.randint(words.nspecial, len(words), shape, device=device)


def random_model(kind: Kind, layers: int, args: argparse.Namespace, words: Dictionary, **options) -> torch.nn.Module:
    """A model of translation, on the device.

    Args:
        kind: which.
        layers: of its decoder.
        args: the widths of encoder and decoder ``embed_dim`` and ``ffn_dim``, their number of ``heads``, and the
            ``device``.
        words: its dictionary, of both languages.
        options: further options.
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


def state_bytes(model: torch.nn.Module, length: int, device: str, words: Dictionary) -> int:
    """Bytes of the decoder's self-attention keys and values after one hypothesis.

    To be called under ``torch.no_grad()``.

    Args:
        model: of translation, in eval mode.
        length: number of tokens that are decoded.
        device: of the model.
        words: its dictionary.
    """
    state = {}
    target = random_words(words, 1, length, device=device)
    for t in range(1, length + 1):
        model.decoder(target[:, :t], incremental_state=state)
    if isinstance(model, FeedbackDecoderModel):
        ring = model.decoder.get_incremental_state(state, "feedback").ring
        return ring.nbytes() * ring.position // ring.slots
    buffers = [layer.self_attn._get_input_buffer(state) for layer in model.decoder.layers]
    return sum(buffer[name].nbytes for buffer in buffers for name in ("prev_key", "prev_value"))
