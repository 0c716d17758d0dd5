"""Import a model's embeddings and output layer, for a fairseq dictionary.

=======================================  ===============================================================================
original                                 fairseq model
=======================================  ===============================================================================
``in_emb.weight``                        ``decoder.embed_tokens.weight``
``out_emb``, or ``out.out_emb``          ``decoder.output_projection``, weight and bias
``in_emb.emb_layers.{i}.weight``         ``decoder.embed_tokens.embeddings.{i}.0.weight``
``in_emb.emb_projs.{i}``                 ``decoder.embed_tokens.embeddings.{i}.1.weight``
``out_emb.out_layers.0.weight``, and     ``decoder.adaptive_softmax.head.weight``, each row multiplied by
``out_emb.cluster_proj.weight``          ``out_emb.out_projs.0``; the clusters in reverse order
``out_emb.out_projs.{i}``, i > 0         ``decoder.adaptive_softmax.tail.{i - 1}.0.weight``, transposed
``out_emb.out_layers.{i}.weight``        ``decoder.adaptive_softmax.tail.{i - 1}.2.weight``
``out_emb.out_layers.0.bias``, and       ``decoder.adaptive_softmax.head.1.bias``; with biases, the head's weight is
``out_emb.cluster_proj.bias``            ``head.0.weight``
``out_emb.out_layers.{i}.bias``          ``decoder.adaptive_softmax.tail.{i - 1}.3.bias``
=======================================  ===============================================================================

All but the first two are adaptive embeddings and an adaptive softmax with clusters i.
"""

import re

import torch
from torch import Tensor

from fb_fairseq.commands.imported import Imported
from fb_fairseq.errors import UserError
from fb_fairseq.papers.import_original.source import Source

# Bias of symbols that are never to be predicted: exp() of it is zero, and fp16 can represent it.
NEVER = -1e4
# The factor by which widths of clusters shrink, where there is only one cluster: fairseq's default, without effect.
DEFAULT_FACTOR = 4.0


def is_adaptive(source: Source) -> bool:
    """Whether the model has adaptive embeddings and an adaptive softmax."""
    return "in_emb.emb_layers.0.weight" in source


def cluster_count(source: Source) -> int:
    """The number of clusters of adaptive embeddings, the shortlist included."""
    return sum(bool(re.match(r"in_emb\.emb_layers\.\d+\.weight$", name)) for name in source.state)


def vocabulary_size(source: Source) -> int:
    """The number of symbols that the model knows."""
    if is_adaptive(source):
        return sum(len(source.take(f"in_emb.emb_layers.{i}.weight")) for i in range(cluster_count(source)))
    return len(source.take("in_emb.weight"))


def import_embeddings(source: Source, indices: list[int], dictionary_size: int) -> Imported:
    """Import embeddings and output layer, adaptive or not, for a fairseq dictionary of this size, in which the original
    symbols have these indices."""
    if is_adaptive(source):
        return import_adaptive(source, indices, dictionary_size)
    return import_plain(source, indices, dictionary_size)


def import_plain(source: Source, indices: list[int], dictionary_size: int) -> Imported:
    """Import an embedding and an output layer. Symbols that the original does not know are never predicted."""
    output = "out.out_emb" if "out.out_emb.weight" in source else "out_emb"
    bias = source.take(f"{output}.bias")
    parameters = {
        "decoder.embed_tokens.weight": scatter_rows(source.take("in_emb.weight"), indices, dictionary_size),
        "decoder.output_projection.weight": scatter_rows(source.take(f"{output}.weight"), indices, dictionary_size),
        "decoder.output_projection.bias": scatter_rows(bias, indices, dictionary_size, fill=NEVER),
    }
    return Imported({}, parameters)


def scatter_rows(rows: Tensor, indices: list[int], number: int, fill: float = 0.0) -> Tensor:
    """A tensor of ``number`` rows: these ones at their indices, all others filled with a value."""
    result = rows.new_full((number, *rows.shape[1:]), fill)
    result[indices] = rows
    return result


def import_adaptive(source: Source, indices: list[int], dictionary_size: int) -> Imported:
    """Import adaptive embeddings and an adaptive softmax, with biases if it has any. Embeddings and softmax become
    untied: adaptive-span projects the shortlist too, which fairseq's softmax does not. That projection is multiplied
    into the weights of the head. Special symbols that the original does not know join the shortlist, and are never
    predicted."""
    tables = [source.take(f"in_emb.emb_layers.{i}.weight") for i in range(cluster_count(source))]
    layers = range(len(tables))
    words = [source.take(f"out_emb.out_layers.{i}.weight") for i in layers]
    projections = [source.take(f"out_emb.out_projs.{i}") for i in layers]
    biases = [source.take(f"out_emb.out_layers.{i}.bias") for i in layers if f"out_emb.out_layers.{i}.bias" in source]
    clusters = source.take("out_emb.cluster_proj.weight") if len(tables) > 1 else words[0][:0]
    cluster_bias = source.take("out_emb.cluster_proj.bias") if len(tables) > 1 and biases else clusters[:, 0]
    biased = any(bias.abs().max() > 0 for bias in [*biases, cluster_bias] if len(bias))
    known = sum(map(len, tables))
    added = dictionary_size - known  # fairseq's special symbols, to the shortlist
    cutoffs = [added + sum(map(len, tables[: i + 1])) for i in layers]
    check_clusters(source, indices, cutoffs, biased)

    def shortlist(rows: Tensor, fill: float = 0.0) -> Tensor:
        return scatter_rows(rows, indices[: len(tables[0])], cutoffs[0], fill)

    # The original's head has the clusters' logits in reverse order: that of cluster 1 comes last.
    head = torch.cat([shortlist(words[0]), clusters.flip(0)]) @ projections[0].t()
    softmax = "decoder.adaptive_softmax"
    parameters = {f"{softmax}.head.{'0.' if biased else ''}weight": head}
    if biased:
        parameters[f"{softmax}.head.1.bias"] = torch.cat([shortlist(biases[0], NEVER), cluster_bias.flip(0)])
    for i, table in enumerate(tables):
        embedding = f"decoder.embed_tokens.embeddings.{i}"
        parameters[f"{embedding}.0.weight"] = table if i else shortlist(table)
        parameters[f"{embedding}.1.weight"] = source.take(f"in_emb.emb_projs.{i}")
        if i:
            tail = f"{softmax}.tail.{i - 1}"
            parameters[f"{tail}.0.weight"] = projections[i].t()
            parameters[f"{tail}.2.weight"] = words[i]
            if biased:
                parameters[f"{tail}.3.bias"] = biases[i]
    width = source.take("in_emb.emb_projs.0").shape[0]
    factor = width / tables[1].shape[1] if len(tables) > 1 else DEFAULT_FACTOR
    cutoff = ",".join(map(str, cutoffs[:-1]))
    options = {
        "adaptive_input": True,
        "adaptive_input_cutoff": cutoff,
        "adaptive_softmax_cutoff": cutoff,
        "adaptive_softmax_bias": biased,
        "adaptive_input_factor": factor,
        "adaptive_softmax_factor": factor,
    }
    return Imported(options, parameters)


def check_clusters(source: Source, indices: list[int], cutoffs: list[int], biased: bool) -> None:
    """Check that only symbols of the shortlist change their place, and that others can be ruled out. Cutoffs are the
    first indices after each cluster."""
    shortlist, symbols = cutoffs[0], cutoffs[-1]
    tails = list(range(shortlist, symbols))
    in_place = indices[len(indices) - len(tails) :] == tails and len(set(indices)) == len(indices)
    if not in_place or (len(indices) < symbols and not biased):
        raise UserError(
            f"{source.path}: "
            + (
                "an adaptive softmax without biases cannot rule out fairseq's special symbols; "
                if in_place
                else "fairseq's special symbols would change the clusters of the adaptive softmax; "
            )
            + "import needs <s>, <pad>, </s> (or <eos>) and <unk> among the most frequent symbols of --dict"
        )
