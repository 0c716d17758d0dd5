"""Run language models to see what they attend to: earlier steps by distance, and persistent vectors."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fb_fairseq.commands.plot.models import CHOICE, LoadedModel, progress
from fb_fairseq.errors import UserError

if TYPE_CHECKING:  # torch is imported only in the functions that need it
    from torch import Tensor

STREAMS = 16  # parallel streams that a text is cut into
BLOCK_STEPS = 64  # steps that are computed together, at most; the length of a block does not change the result
BLOCK_ENTRIES = 1 << 24  # attention weights that are computed together, at most
MAP_TOKENS = 100  # more labels than these could not be read


class Attention(NamedTuple):
    """Attention of each layer, averaged over heads and steps."""

    layers: list[list[float]]  # for each layer the weights by distance; entry d - 1 is that of the step d steps back
    # each layer's share of attention on persistent vectors, where these are in the same softmax; the layer's weights
    # sum to the rest. Else None.
    persistent: list[float] | None


class AttentionMap(NamedTuple):
    """Attention between the tokens of a text."""

    # for each token but the first (``</s>``) the weights of those before it, and NaN for the others, [T - 1, T - 1]
    rows: list[list[float]]
    tokens: list[int]  # all T tokens
    what: str  # which layers it is of


def cut_text(corpus, tokens: int, context: int) -> tuple["Tensor", int]:
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


def mean_over_steps(
    loaded: LoadedModel, tokens_BT: "Tensor", context: int, measure: Callable, block: int = BLOCK_STEPS
) -> "Tensor":
    """Run a model over streams, and average a measure over their steps.

    Args:
        context: number of first steps that do not count.
        measure: from the embeddings [T, B, D] of a block and the state before it, the mean over the block's steps and
            streams, and the state after it.
        block: number of steps computed together."""
    import torch

    decoder, steps = loaded.model.decoder, tokens_BT.shape[1]
    state, total = None, 0.0
    starts = [*range(0, context, block), *range(context, steps, block)]
    with torch.no_grad():
        for start in progress(starts, loaded):
            last = min(start + block, context if start < context else steps)
            x_TBD = decoder.embed(tokens_BT[:, start:last].to(loaded.device), start).transpose(0, 1)
            if start < context:
                _, state = decoder.stack.run_block(x_TBD, state)
            else:
                mean, state = measure(x_TBD, state)
                total = total + mean.double() * len(x_TBD)
    return (total / (steps - context)).cpu()


def check_attention(loaded: LoadedModel) -> None:
    """Check that a model attends to earlier steps."""
    if not hasattr(loaded.stack, "memory_attention"):
        raise UserError(f"{loaded.source}: attends to nothing (an LSTM); give a checkpoint of {CHOICE}")


def mean_attention(loaded: LoadedModel, tokens_BT: "Tensor", context: int) -> Attention:
    """The attention by layer and distance, averaged over heads, steps and streams. ``tokens_BT``, ``context``: see
    ``mean_over_steps``."""
    check_attention(loaded)

    def measure(x_TBD, state):
        weights_LBHTS, state = loaded.stack.memory_attention(x_TBD, state)
        return weights_LBHTS.mean((1, 2, 3)), state

    o = loaded.stack.options
    entries = o.decoder_layers * len(tokens_BT) * o.decoder_attention_heads * o.attention_span  # of a step
    block = min(BLOCK_STEPS, max(1, BLOCK_ENTRIES // entries))
    layers_LS = mean_over_steps(loaded, tokens_BT, context, measure, block)
    shared_softmax = has_persistent_vectors(loaded) and o.persistent_memory_variant == "all-attn"
    return Attention(layers_LS.tolist(), (1 - layers_LS.sum(1)).tolist() if shared_softmax else None)


def attention_map(loaded: LoadedModel, tokens: list[int], layer: int | None) -> AttentionMap:
    """The attention between the tokens of a short text, averaged over heads. ``layer``: counted from 1; None: the mean
    of all layers."""
    import torch

    from fb_fairseq.ops.attention import by_slot

    check_attention(loaded)
    layers, T = loaded.stack.options.decoder_layers, len(tokens)
    if layer is not None and not 1 <= layer <= layers:
        raise UserError(f"--layer {layer}: {loaded.source} has layers 1 to {layers}; give one of these")
    if T - 1 > MAP_TOKENS:
        raise UserError(f"--attention-map: {T - 1} tokens are too many for a map; give {MAP_TOKENS} or fewer")
    with torch.no_grad():
        x_TBD = loaded.model.decoder.embed(torch.tensor([tokens], device=loaded.device), 0).transpose(0, 1)
        weights_LBHTS, _ = loaded.stack.memory_attention(x_TBD)
    weights_LTS = weights_LBHTS.mean((1, 2)).cpu()
    weights_TS = weights_LTS.mean(0) if layer is None else weights_LTS[layer - 1]
    rows = by_slot(weights_TS.flip(1), T - 1)[1:]
    later = torch.ones_like(rows, dtype=torch.bool).triu(1)
    what = "mean of all layers" if layer is None else f"layer {layer}"
    return AttentionMap(rows.masked_fill(later, float("nan")).tolist(), tokens, what)


def has_persistent_vectors(loaded: LoadedModel) -> bool:
    """Whether a model attends to persistent vectors."""
    from fb_fairseq.modules import AllAttention

    return isinstance(loaded.stack, AllAttention) and loaded.stack.options.persistent_memory_size > 0


def check_persistent(loaded: LoadedModel) -> None:
    """Check that a model has persistent vectors."""
    if not has_persistent_vectors(loaded):
        raise UserError(f"{loaded.source}: has no persistent vectors; give a checkpoint of all_attention_lm")


def persistent_shares(
    loaded: LoadedModel, tokens_BT: "Tensor", context: int, block: int = BLOCK_STEPS
) -> list[list[float]]:
    """The share of attention on persistent vectors, by layer and head. ``tokens_BT``, ``context``, ``block``: see
    ``mean_over_steps``."""
    check_persistent(loaded)
    return mean_over_steps(loaded, tokens_BT, context, loaded.stack.persistent_shares, block).tolist()


def persistent_use(loaded: LoadedModel, tokens_BT: "Tensor", context: int) -> list[list[float]]:
    """How few persistent vectors take how much of the attention that goes to persistent vectors.

    Args:
        tokens_BT, context: see ``mean_over_steps``.

    Returns:
        For each layer, entry n - 1 is the share of the n vectors with most attention, averaged over heads."""
    check_persistent(loaded)
    use_LUN = mean_over_steps(loaded, tokens_BT, context, loaded.stack.persistent_use)
    sorted_LUN = use_LUN.sort(-1, descending=True).values / use_LUN.sum(-1, keepdim=True)
    return sorted_LUN.cumsum(-1).mean(1).tolist()


def doubling_bins(longest: int) -> list[tuple[int, int]]:
    """First and last of 1, 2, 3 to 4, 5 to 8, …, up to ``longest``."""
    return [(1, 1)] + [(2**i + 1, min(2 ** (i + 1), longest)) for i in range((longest - 1).bit_length())]
