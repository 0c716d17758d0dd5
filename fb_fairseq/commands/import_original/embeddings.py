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
=======================================  ===============================================================================

The last five are adaptive embeddings and an adaptive softmax with clusters i.
"""

import re
from typing import List

import torch
from torch import Tensor

from fb_fairseq.commands.import_original.source import Imported, Source
from fb_fairseq.errors import UserError

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


def import_embeddings(source: Source, indices: List[int], dictionary_size: int) -> Imported:
    """Import embeddings and output layer, adaptive or not.

    Args:
        indices: index in the fairseq dictionary of each symbol of the original vocabulary.
        dictionary_size: number of symbols of the fairseq dictionary.

    Raises:
        UserError: a parameter is missing, or the adaptive softmax cannot be imported.
    """
    if is_adaptive(source):
        return import_adaptive(source, indices)
    return import_plain(source, indices, dictionary_size)


def import_plain(source: Source, indices: List[int], dictionary_size: int) -> Imported:
    """Import an embedding and an output layer. Symbols that the original does not know are never predicted."""
    output = "out.out_emb" if "out.out_emb.weight" in source else "out_emb"
    bias = source.take(f"{output}.bias")
    parameters = {
        "decoder.embed_tokens.weight": scatter_rows(source.take("in_emb.weight"), indices, dictionary_size),
        "decoder.output_projection.weight": scatter_rows(source.take(f"{output}.weight"), indices, dictionary_size),
        "decoder.output_projection.bias": scatter_rows(bias, indices, dictionary_size, fill=NEVER),
    }
    return Imported({}, parameters)


def scatter_rows(rows: Tensor, indices: List[int], number: int, fill: float = 0.0) -> Tensor:
    """A tensor of ``number`` rows: these ones at their indices, all others filled with a value."""
    result = rows.new_full((number, *rows.shape[1:]), fill)
    result[indices] = rows
    return result


def import_adaptive(source: Source, indices: List[int]) -> Imported:
    """Import adaptive embeddings and an adaptive softmax.

    Embeddings and softmax become untied: adaptive-span projects the shortlist too, which fairseq's softmax does not.
    That projection is multiplied into the weights of the head.

    Raises:
        UserError: the output layers have biases, which fairseq's ``AdaptiveSoftmax`` does not support; or a symbol
            would move to another cluster.
    """
    tables = [source.take(f"in_emb.emb_layers.{i}.weight") for i in range(cluster_count(source))]
    cutoffs = [sum(map(len, tables[: i + 1])) for i in range(len(tables))]
    check_output_biases(source)
    check_clusters(source, indices, cutoffs)
    shortlist_order = torch.tensor(indices[: cutoffs[0]]).argsort()
    parameters = {}
    for i, table in enumerate(tables):
        words = source.take(f"out_emb.out_layers.{i}.weight")
        projection = source.take(f"out_emb.out_projs.{i}")
        if i == 0:
            table, words = table[shortlist_order], words[shortlist_order]
            # The original's head has the clusters' logits in reverse order: that of cluster 1 comes last.
            head = torch.cat([words, source.take("out_emb.cluster_proj.weight").flip(0)])
            parameters["decoder.adaptive_softmax.head.weight"] = head @ projection.t()
        else:
            parameters[f"decoder.adaptive_softmax.tail.{i - 1}.0.weight"] = projection.t()
            parameters[f"decoder.adaptive_softmax.tail.{i - 1}.2.weight"] = words
        parameters[f"decoder.embed_tokens.embeddings.{i}.0.weight"] = table
        parameters[f"decoder.embed_tokens.embeddings.{i}.1.weight"] = source.take(f"in_emb.emb_projs.{i}")
    width = source.take("in_emb.emb_projs.0").shape[0]
    factor = width / tables[1].shape[1] if len(tables) > 1 else DEFAULT_FACTOR
    cutoff = ",".join(map(str, cutoffs[:-1]))
    options = {
        "adaptive_input": True,
        "adaptive_input_cutoff": cutoff,
        "adaptive_softmax_cutoff": cutoff,
        "adaptive_input_factor": factor,
        "adaptive_softmax_factor": factor,
    }
    return Imported(options, parameters)


def check_output_biases(source: Source) -> None:
    """Check that all biases of the output layers are zero.

    Raises:
        UserError: they are not.
    """
    biases = [source.take(name) for name in source.state if re.match(r"out_emb\..*\.bias$", name)]
    if any(bias.abs().max() > 0 for bias in biases):
        raise UserError(
            f"{source.path}: its adaptive softmax has output biases, which fairseq's AdaptiveSoftmax does not support; "
            "it can be imported only if they are zero"
        )


def check_clusters(source: Source, indices: List[int], cutoffs: List[int]) -> None:
    """Check that the dictionary has no other symbols, and that only symbols of the shortlist change their index.

    Raises:
        UserError: this does not hold.
    """
    shortlist, symbols = cutoffs[0], cutoffs[-1]
    if sorted(indices) != list(range(symbols)) or indices[shortlist:] != list(range(shortlist, symbols)):
        raise UserError(
            f"{source.path}: an adaptive softmax without biases cannot rule out fairseq's special symbols; "
            "import needs <s>, <pad>, </s> (or <eos>) and <unk> among the most frequent symbols of --dict"
        )
