"""Input and output layers of the language models: plain, tied, or adaptive."""

import math
from dataclasses import dataclass
from typing import NamedTuple, Optional

import torch.nn as nn

from fb_fairseq.command_line import option
from fb_fairseq.errors import UserError
from fb_fairseq.modules.adaptive_bands import band_widths
from fb_fairseq.modules.adaptive_input import AdaptiveEmbedding
from fb_fairseq.modules.adaptive_softmax import AdaptiveSoftmax
from fb_fairseq.modules.options import CheckedOptions


@dataclass(frozen=True)
class WordOptions(CheckedOptions):
    """Options of embeddings and output layer, as on the command line."""

    share_decoder_input_output_embed: bool = option(
        False,
        "share input and output embeddings (initialised from N(0, 1/D) and scaled by sqrt(D), as in fairseq; if not "
        "shared: N(0, 1), unscaled, and an output layer with a bias)",
    )
    adaptive_input: bool = option(False, "adaptive input embeddings (Baevski & Auli 2019)")
    adaptive_input_factor: float = option(4, "factor by which the width shrinks from one cluster to the next")
    adaptive_input_cutoff: Optional[str] = option(  # noqa: UP045
        None, "first word of each cluster except the first one, for example 20000,40000"
    )
    adaptive_softmax_cutoff: Optional[str] = option(None, "the same for the adaptive softmax (Grave et al. 2017)")  # noqa: UP045
    adaptive_softmax_bias: bool = option(
        False, "give the adaptive softmax a bias for each word and cluster, as in the published all-attention code"
    )
    adaptive_softmax_dropout: float = option(0.0, "dropout of the tail clusters' projections")
    adaptive_softmax_factor: float = option(4, "factor by which the width shrinks from one cluster to the next")
    tie_adaptive_weights: bool = option(False, "share the embeddings of adaptive input and softmax")
    tie_adaptive_proj: bool = option(False, "share the projections of adaptive input and softmax too")

    def __post_init__(self):
        self.check_fields()
        for name in ("adaptive_input", "adaptive_softmax"):
            self.cutoffs(f"{name}_cutoff")
            self.check(getattr(self, f"{name}_factor") >= 1, f"{name}_factor", "must be 1 or more")
        if bool(self.adaptive_input) != bool(self.adaptive_input_cutoff):
            raise UserError("--adaptive-input and --adaptive-input-cutoff go together: give both, or neither")
        if self.share_decoder_input_output_embed and (self.adaptive_input or self.adaptive_softmax_cutoff):
            raise UserError(
                "--share-decoder-input-output-embed: is for plain embeddings; with adaptive ones give "
                "--tie-adaptive-weights"
            )
        if self.adaptive_softmax_bias and not self.adaptive_softmax_cutoff:
            raise UserError("--adaptive-softmax-bias: is for an adaptive softmax; give --adaptive-softmax-cutoff too")
        same_clusters = (
            self.cutoffs("adaptive_input_cutoff") == self.cutoffs("adaptive_softmax_cutoff")
            and self.adaptive_input_factor == self.adaptive_softmax_factor
        )
        if self.tie_adaptive_weights and not (self.adaptive_input and same_clusters):
            raise UserError(
                "--tie-adaptive-weights needs --adaptive-input, and the same cut-offs and factors for input and softmax"
            )
        if self.tie_adaptive_proj and not self.tie_adaptive_weights:
            raise UserError("--tie-adaptive-proj needs --tie-adaptive-weights; give that too")

    def cutoffs(self, name: str) -> list[int]:
        """The cut-offs of an option, given as ``20000,40000``; empty if it is not given."""
        text = getattr(self, name)
        if not text:
            return []
        try:
            values = [int(value) for value in text.split(",")]
        except ValueError:
            values = []
        self.check(bool(values), name, "give word numbers, for example 20000,40000")
        increasing = values[0] >= 1 and all(a < b for a, b in zip(values, values[1:]))
        self.check(increasing, name, "the cut-offs must be increasing numbers, 1 or more")
        return values

    def check_sizes(self, width: int, inputs: int, padding_idx: int, outputs: int) -> None:
        """Check the clusters against the model's sizes; see ``build_word_layers``."""
        for kind, vocabulary in (("adaptive_input", inputs), ("adaptive_softmax", outputs)):
            values = self.cutoffs(f"{kind}_cutoff")
            self.check(
                all(value < vocabulary for value in values),
                f"{kind}_cutoff",
                f"the vocabulary has only {vocabulary} symbols; give smaller cut-offs",
            )
            self.check(
                min(band_widths(width, getattr(self, f"{kind}_factor"), len(values) + 1)) > 0,
                f"{kind}_factor",
                f"leaves the last of {len(values) + 1} clusters no width; give a smaller factor, or fewer cut-offs",
            )
        values = self.cutoffs("adaptive_input_cutoff")
        self.check(
            not values or padding_idx < values[0],
            "adaptive_input_cutoff",
            f"padding is symbol {padding_idx} and belongs into the first cluster; give a larger first cut-off",
        )


class WordLayers(NamedTuple):
    """The layers on both sides of a stack, by the names that they have in fairseq's decoders.

    Attributes:
        embed_tokens: maps tokens [...] to embeddings [..., D].
        embed_scale: by which these are multiplied.
        adaptive_softmax: None if the output layer is plain.
        output_projection: maps features [..., D] to logits [..., V]; None with an adaptive softmax.
    """

    embed_tokens: nn.Embedding | AdaptiveEmbedding
    embed_scale: float
    adaptive_softmax: AdaptiveSoftmax | None
    output_projection: nn.Linear | None


def build_word_layers(
    options: WordOptions, width: int, inputs: int, padding_idx: int, outputs: int | None = None
) -> WordLayers:
    """Build embeddings and output layer.

    Untied plain embeddings are N(0, 1), unscaled, and the output layer has a bias, as published for characters. Tied
    and adaptive ones are as in fairseq: N(0, 1/D), scaled by sqrt(D) at the input, without bias (unless
    ``adaptive_softmax_bias``).

    Args:
        width: the model's width D.
        inputs: number of input symbols.
        padding_idx: the input symbol whose embedding is zero.
        outputs: number of output symbols; None: those of the input.
    """
    outputs = inputs if outputs is None else outputs
    options.check_sizes(width, inputs, padding_idx, outputs)
    tied = options.share_decoder_input_output_embed
    if options.adaptive_input:
        cutoffs = options.cutoffs("adaptive_input_cutoff")
        embed_tokens = AdaptiveEmbedding(inputs, padding_idx, width, options.adaptive_input_factor, cutoffs)
    else:
        embed_tokens = nn.Embedding(inputs, width, padding_idx=padding_idx)
    embed_scale = math.sqrt(width) if tied or options.adaptive_input else 1.0
    if options.adaptive_softmax_cutoff:
        softmax = AdaptiveSoftmax(
            outputs,
            width,
            options.cutoffs("adaptive_softmax_cutoff"),
            factor=options.adaptive_softmax_factor,
            dropout=options.adaptive_softmax_dropout,
            bias=options.adaptive_softmax_bias,
            tied=embed_tokens if options.tie_adaptive_weights else None,
            tie_projections=options.tie_adaptive_proj,
        )
        return WordLayers(embed_tokens, embed_scale, softmax, None)
    output_projection = nn.Linear(width, outputs, bias=not tied)
    if tied:
        embed_tokens.weight.data.div_(embed_scale)
        output_projection.weight = embed_tokens.weight
    return WordLayers(embed_tokens, embed_scale, None, output_projection)
