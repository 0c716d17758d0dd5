"""Run language models to measure what they attend to: past steps, and persistent vectors."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.ops.windows import by_slot
from fb_fairseq.pretrained.model import LanguageModel
from fb_fairseq.printing import progress

STREAMS = 16  # parallel streams that a text is cut into
BLOCK_STEPS = 64  # steps that are computed together, at most; the length of a block does not change the result
BLOCK_ENTRIES = 1 << 24  # attention weights that are computed together, at most
SINGLE_DISTANCES = 16  # the longest span whose distances have a column each
MAP_TOKENS = 100  # more labels than these could not be read


class Shares(NamedTuple):
    """Shares of attention.

    Attributes:
        rows: for each layer from the lowest on, its shares in percent.
        columns: what each is a share of, in words.
        what: what the columns are.
    """

    rows: list[list[float]]
    columns: list[str]
    what: str


class AttentionMap(NamedTuple):
    """Attention between the tokens of a text, mean of all heads.

    Attributes:
        rows: for each token but the first (``</s>``) the weights of those before it, and NaN for the others, [T - 1,
            T - 1].
        labels: all T tokens, in words.
        what: its layers, in words.
    """

    rows: list[list[float]]
    labels: list[str]
    what: str


def cut_text(corpus, tokens: int, context: int) -> tuple[Tensor, int]:
    """Cut the beginning of a text into streams of equal length, which overlap: each first reads what comes before.

    Args:
        corpus: a ``Corpus``.
        tokens: how many tokens are to be counted.
        context: how many a stream reads before those.

    Returns:
        Tokens [B, T], and how many of a stream's first steps do not count: ``context``, or less if the text is short.
    """
    context = min(context, len(corpus) // 2)
    counted = min(tokens, len(corpus) - context)
    streams = min(STREAMS, counted)
    steps = counted // streams
    return corpus[0 : context + streams * steps].unfold(0, context + steps, steps), context


@torch.no_grad()
def mean_over_steps(
    model: LanguageModel, tokens_BT: Tensor, context: int, measure: Callable, block: int = BLOCK_STEPS
) -> Tensor:
    """Run a model over streams, and average a measure over their steps.

    Args:
        tokens_BT: the streams.
        context: number of first steps that do not count.
        measure: from the embeddings [T, B, D] of a block and the state before it, the mean over the block's steps and
            streams, and the state after it.
        block: number of steps computed together.
    """
    steps = tokens_BT.shape[1]
    state, total = None, 0.0
    starts = [*range(0, context, block), *range(context, steps, block)]
    for start in progress(starts, model.source):
        last = min(start + block, context if start < context else steps)
        x_TBD = model.embed(tokens_BT[:, start:last].to(model.device), start).transpose(0, 1)
        if start < context:
            _, state = model.stack.run_block(x_TBD, state)
        else:
            mean, state = measure(x_TBD, state)
            total = total + mean.double() * len(x_TBD)
    return (total / (steps - context)).cpu()


def doubling_bins(longest: int) -> list[tuple[int, int]]:
    """First and last of 1, 2, 3 to 4, 5 to 8, …, up to ``longest``."""
    return [(1, 1)] + [(2**i + 1, min(2 ** (i + 1), longest)) for i in range((longest - 1).bit_length())]


def check_attention(model: LanguageModel) -> None:
    """Check that a model attends to earlier steps."""
    if not hasattr(model.stack, "memory_attention"):
        raise UserError(
            f"{model.source}: attends to nothing (an LSTM); give feedback_transformer_lm, relative_transformer_lm or "
            "all_attention_lm"
        )


def mean_attention(model: LanguageModel, tokens_BT: Tensor, context: int) -> Shares:
    """The attention of each layer to ranges of distance, averaged over heads, steps and streams; persistent vectors in
    the same softmax have the first column.

    Args:
        tokens_BT, context: see ``mean_over_steps``.
    """
    check_attention(model)

    def measure(x_TBD, state):
        weights_LBHTS, state = model.stack.memory_attention(x_TBD, state)
        return weights_LBHTS.mean((1, 2, 3)), state

    o = model.stack.options
    entries = o.decoder_layers * len(tokens_BT) * o.decoder_attention_heads * o.attention_span  # of a step
    block = min(BLOCK_STEPS, max(1, BLOCK_ENTRIES // entries))
    shares_LS = 100 * mean_over_steps(model, tokens_BT, context, measure, block)
    span = shares_LS.shape[1]
    bins = [(d, d) for d in range(1, span + 1)] if span <= SINGLE_DISTANCES else doubling_bins(span)
    parts = [shares_LS[:, nearest - 1 : farthest].sum(1) for nearest, farthest in bins]
    columns = [str(nearest) if nearest == farthest else f"{nearest}–{farthest}" for nearest, farthest in bins]
    if persistent_in_softmax(model):
        parts.insert(0, 100 - shares_LS.sum(1))
        columns.insert(0, "persistent")
    return Shares(torch.stack(parts, 1).tolist(), columns, "distance (steps back)")


@torch.no_grad()
def attention_map(model: LanguageModel, tokens: list[int], layer: int | None) -> AttentionMap:
    """The attention between the tokens of a short text, averaged over heads.

    Args:
        tokens: of the text, ``</s>`` first.
        layer: counted from 1; None: the mean of all layers.
    """
    check_attention(model)
    layers, T = model.stack.options.decoder_layers, len(tokens)
    if layer is not None and not 1 <= layer <= layers:
        raise UserError(f"--layer {layer}: {model.source} has layers 1 to {layers}; give one of these")
    if T - 1 > MAP_TOKENS:
        raise UserError(f"--attention-map: {T - 1} tokens are too many for a map; give {MAP_TOKENS} or fewer")
    x_TBD = model.embed(torch.tensor([tokens], device=model.device), 0).transpose(0, 1)
    weights_LBHTS, _ = model.stack.memory_attention(x_TBD)
    weights_LTS = weights_LBHTS.mean((1, 2)).cpu()
    weights_TS = weights_LTS.mean(0) if layer is None else weights_LTS[layer - 1]
    rows = by_slot(weights_TS.flip(1), T - 1)[1:]
    later = torch.ones_like(rows, dtype=torch.bool).triu(1)
    what = "mean of all layers and heads" if layer is None else f"layer {layer}, mean of all heads"
    return AttentionMap(rows.masked_fill(later, float("nan")).tolist(), model.vocabulary.labels(tokens), what)


def persistent_in_softmax(model: LanguageModel) -> bool:
    """Whether persistent vectors take a part of the attention on past steps."""
    options = model.stack.options
    return options.persistent_memory_size > 0 and options.persistent_memory_variant == "all-attn"
