"""Input and output layers of the language models: plain, tied, or adaptive (fairseq's own modules)."""

import math
from typing import List

import torch.nn as nn
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax

from fb_fairseq.errors import UserError


def build_word_layers(decoder: nn.Module, cfg, dictionary, output_dictionary) -> None:
    """Give a decoder ``embed_tokens``, ``embed_scale`` and ``output_projection`` or ``adaptive_softmax``.

    Free embeddings are N(0, 1), unscaled, and the output layer has a bias, as published for characters. Tied and
    adaptive ones are fairseq's: N(0, 1/D), scaled by sqrt(D) at the input, without bias.

    Raises:
        UserError: options contradict each other; the message names them.
    """
    V, D = len(dictionary), cfg.decoder_embed_dim
    outputs, tied = len(output_dictionary), cfg.share_decoder_input_output_embed
    if output_dictionary is not dictionary and (tied or cfg.tie_adaptive_weights):
        name = "--share-decoder-input-output-embed" if tied else "--tie-adaptive-weights"
        raise UserError(f"{name}: inputs and labels (--labels) have dictionaries of their own; leave it out")
    check_adaptive(cfg, V, outputs)
    decoder.adaptive_softmax = None
    decoder.output_projection = None
    if cfg.adaptive_input:
        decoder.embed_tokens = AdaptiveInput(
            V, dictionary.pad(), D, cfg.adaptive_input_factor, D, cutoffs(cfg, "adaptive_input_cutoff", V)
        )
    else:
        decoder.embed_tokens = nn.Embedding(V, D, padding_idx=dictionary.pad())
    decoder.embed_scale = math.sqrt(D) if tied or cfg.adaptive_input else 1.0
    if cfg.adaptive_softmax_cutoff:
        decoder.adaptive_softmax = AdaptiveSoftmax(
            outputs,
            D,
            cutoffs(cfg, "adaptive_softmax_cutoff", outputs),
            dropout=cfg.adaptive_softmax_dropout,
            factor=cfg.adaptive_softmax_factor,
            adaptive_inputs=decoder.embed_tokens if cfg.tie_adaptive_weights else None,
            tie_proj=cfg.tie_adaptive_proj,
        )
        return
    decoder.output_projection = nn.Linear(D, outputs, bias=not tied)
    if tied:
        decoder.embed_tokens.weight.data.div_(decoder.embed_scale)
        decoder.output_projection.weight = decoder.embed_tokens.weight


def check_adaptive(cfg, inputs: int, outputs: int) -> None:
    def require(good, message):
        if not good:
            raise UserError(message)

    for name, vocabulary in (("adaptive_input_cutoff", inputs), ("adaptive_softmax_cutoff", outputs)):
        cutoffs(cfg, name, vocabulary)
    require(
        bool(cfg.adaptive_input) == bool(cfg.adaptive_input_cutoff),
        "--adaptive-input and --adaptive-input-cutoff go together: give both, or neither",
    )
    require(
        not (cfg.share_decoder_input_output_embed and (cfg.adaptive_input or cfg.adaptive_softmax_cutoff)),
        "--share-decoder-input-output-embed is for plain embeddings; with adaptive ones give --tie-adaptive-weights",
    )
    require(
        not cfg.tie_adaptive_weights
        or cfg.adaptive_input
        and cfg.adaptive_input_cutoff == cfg.adaptive_softmax_cutoff
        and cfg.adaptive_input_factor == cfg.adaptive_softmax_factor,
        "--tie-adaptive-weights needs --adaptive-input, and the same cut-offs and factors for input and softmax",
    )
    require(
        not cfg.tie_adaptive_proj or cfg.tie_adaptive_weights,
        "--tie-adaptive-proj needs --tie-adaptive-weights; give that too",
    )


def cutoffs(cfg, name: str, vocabulary: int) -> List[int]:
    """The cut-offs of an option, as ``20000,40000``.

    Raises:
        UserError: they are no numbers, do not rise, or reach past the vocabulary.
    """
    text = getattr(cfg, name)
    if not text:
        return []
    option = f"--{name.replace('_', '-')} {text}"
    try:
        values = [int(value) for value in text.split(",")]
    except ValueError:
        raise UserError(f"{option}: give word numbers, as 20000,40000") from None
    if values[0] < 1 or any(a >= b for a, b in zip(values, values[1:])):
        raise UserError(f"{option}: the cut-offs must rise")
    if values[-1] >= vocabulary:
        raise UserError(f"{option}: the vocabulary has only {vocabulary} symbols; give smaller cut-offs")
    return values


def vocabulary_of(state_dict, prefix: str) -> int:
    """How many symbols a checkpoint's embeddings, plain or adaptive, are for."""
    plain = state_dict.get(f"{prefix}weight")
    if plain is not None:
        return len(plain)
    return sum(
        len(value)
        for name, value in state_dict.items()
        if name.startswith(f"{prefix}embeddings.") and name.endswith(".0.weight")
    )


def check_dictionary(state_dict, side: str, dictionary, file: str = "dict.txt") -> None:
    """
    Raises:
        UserError: the encoder or decoder of a checkpoint was trained with a dictionary of another size.
    """
    saved, own = vocabulary_of(state_dict, f"{side}.embed_tokens."), len(dictionary)
    if saved and saved != own:
        raise UserError(
            f"{file}: the checkpoint's model was trained with a dictionary of {saved} symbols, the data's has {own}; "
            "give data that was prepared with the same dictionary (fairseq-preprocess --srcdict, --tgtdict)"
        )
