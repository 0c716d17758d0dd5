"""Input and output layers of the language models: plain, tied, or adaptive (fairseq's own modules)."""

import math
from typing import Dict, List

import torch
import torch.nn as nn
from fairseq.data import Dictionary
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax
from torch import Tensor

from fb_fairseq.errors import UserError, flag


class AdaptiveEmbedding(AdaptiveInput):
    """fairseq's adaptive input, which can be trained with autocast (``--amp``) too.

    fairseq's writes the half-precision outputs of its projections into an fp32 tensor, which PyTorch refuses.
    """

    def forward(self, tokens: Tensor) -> Tensor:
        """Embeddings [..., D] of tokens [...], in the parameters' type."""
        with torch.autocast(tokens.device.type, enabled=False):
            return super().forward(tokens)


class Bias(nn.Module):
    """Adds a vector, zero at first.

    Args:
        size: its size.
    """

    def __init__(self, size: int):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] with the vector added."""
        return x + self.bias


class BiasedAdaptiveSoftmax(AdaptiveSoftmax):
    """fairseq's adaptive softmax with a bias for each word and cluster, as the published all-attention code has them.

    The biases are ``head.1.bias`` (the shortlist, then the clusters) and ``tail.{i}.3.bias``.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.head = nn.Sequential(self.head, Bias(self.cutoff[0] + len(self.tail)))
        for i, tail in enumerate(self.tail):
            tail.append(Bias(self.cutoff[i + 1] - self.cutoff[i]))


def build_word_layers(decoder: nn.Module, cfg, dictionary: Dictionary, output_dictionary: Dictionary) -> None:
    """Give a decoder ``embed_tokens``, ``embed_scale`` and ``output_projection`` or ``adaptive_softmax``.

    Untied plain embeddings are N(0, 1), unscaled, and the output layer has a bias, as published for characters. Tied
    and adaptive ones are fairseq's: N(0, 1/D), scaled by sqrt(D) at the input, without bias (unless
    ``adaptive_softmax_bias``).

    Args:
        cfg: a ``LanguageModelConfig``.
        output_dictionary: that of the targets; may be ``dictionary`` itself.

    Raises:
        UserError: options contradict each other; the message names them.
    """
    V, D, outputs = len(dictionary), cfg.decoder_embed_dim, len(output_dictionary)
    tied = cfg.share_decoder_input_output_embed
    if output_dictionary is not dictionary:
        for name in ("share_decoder_input_output_embed", "tie_adaptive_weights"):
            if getattr(cfg, name):
                raise UserError(f"{flag(name)}: inputs and labels (--labels) have different dictionaries; leave it out")
    check_adaptive_options(cfg, V, outputs)
    decoder.adaptive_softmax = None
    decoder.output_projection = None
    if cfg.adaptive_input:
        decoder.embed_tokens = AdaptiveEmbedding(
            V, dictionary.pad(), D, cfg.adaptive_input_factor, D, cutoffs(cfg, "adaptive_input_cutoff", V)
        )
    else:
        decoder.embed_tokens = nn.Embedding(V, D, padding_idx=dictionary.pad())
    decoder.embed_scale = math.sqrt(D) if tied or cfg.adaptive_input else 1.0
    if cfg.adaptive_softmax_cutoff:
        kind = BiasedAdaptiveSoftmax if cfg.adaptive_softmax_bias else AdaptiveSoftmax
        decoder.adaptive_softmax = kind(
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


def check_adaptive_options(cfg, inputs: int, outputs: int) -> None:
    """Check the options of adaptive embeddings and softmax.

    Args:
        inputs, outputs: sizes of the two vocabularies.

    Raises:
        UserError: they contradict each other; the message names them.
    """
    cutoffs(cfg, "adaptive_input_cutoff", inputs)
    cutoffs(cfg, "adaptive_softmax_cutoff", outputs)
    if bool(cfg.adaptive_input) != bool(cfg.adaptive_input_cutoff):
        raise UserError("--adaptive-input and --adaptive-input-cutoff go together: give both, or neither")
    if cfg.share_decoder_input_output_embed and (cfg.adaptive_input or cfg.adaptive_softmax_cutoff):
        raise UserError(
            "--share-decoder-input-output-embed is for plain embeddings; with adaptive ones give --tie-adaptive-weights"
        )
    if cfg.adaptive_softmax_bias and not cfg.adaptive_softmax_cutoff:
        raise UserError("--adaptive-softmax-bias: is for an adaptive softmax; give --adaptive-softmax-cutoff too")
    same_clusters = (
        cfg.adaptive_input_cutoff == cfg.adaptive_softmax_cutoff
        and cfg.adaptive_input_factor == cfg.adaptive_softmax_factor
    )
    if cfg.tie_adaptive_weights and not (cfg.adaptive_input and same_clusters):
        raise UserError(
            "--tie-adaptive-weights needs --adaptive-input, and the same cut-offs and factors for input and softmax"
        )
    if cfg.tie_adaptive_proj and not cfg.tie_adaptive_weights:
        raise UserError("--tie-adaptive-proj needs --tie-adaptive-weights; give that too")


def cutoffs(cfg, name: str, vocabulary: int) -> List[int]:
    """The cut-offs of an option, given as ``20000,40000``; empty if it is not given.

    Args:
        name: the option's name in ``cfg``.
        vocabulary: number of symbols.

    Raises:
        UserError: they are not numbers, do not rise, or exceed the vocabulary.
    """
    text = getattr(cfg, name)
    if not text:
        return []
    given = f"{flag(name)} {text}"
    try:
        values = [int(value) for value in text.split(",")]
    except ValueError:
        raise UserError(f"{given}: give word numbers, for example 20000,40000") from None
    if values[0] < 1 or any(a >= b for a, b in zip(values, values[1:])):
        raise UserError(f"{given}: the cut-offs must be increasing numbers, 1 or more")
    if values[-1] >= vocabulary:
        raise UserError(f"{given}: the vocabulary has only {vocabulary} symbols; give smaller cut-offs")
    return values


def vocabulary_size(state_dict: Dict[str, Tensor], prefix: str) -> int:
    """Number of symbols of a checkpoint's embeddings, plain or adaptive; 0 if there are none of this prefix."""
    plain = state_dict.get(f"{prefix}weight")
    if plain is not None:
        return len(plain)
    return sum(
        len(value)
        for name, value in state_dict.items()
        if name.startswith(f"{prefix}embeddings.") and name.endswith(".0.weight")
    )


def check_dictionary(state_dict: Dict[str, Tensor], side: str, dictionary: Dictionary, file: str = "dict.txt") -> None:
    """Check a checkpoint's embeddings against the dictionary of the data.

    Args:
        side: ``encoder`` or ``decoder``.
        file: the dictionary's name, for the error.

    Raises:
        UserError: this side was trained with a dictionary of another size.
    """
    saved, own = vocabulary_size(state_dict, f"{side}.embed_tokens."), len(dictionary)
    if saved and saved != own:
        raise UserError(
            f"{file}: the checkpoint's model was trained with a dictionary of {saved} symbols, the data's has {own}; "
            "give data prepared with the same dictionary (fairseq-preprocess --srcdict, --tgtdict), or another "
            "--save-dir for a new model"
        )
