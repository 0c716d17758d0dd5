"""Import embeddings and output layer of an original checkpoint.

=======================================  ===============================================================================
original                                 fairseq model
=======================================  ===============================================================================
``in_emb.weight``                        ``decoder.embed_tokens.weight``
``out_emb``, or ``out.out_emb``          ``decoder.output_projection``, weight and bias
``in_emb.emb_layers.{i}.weight``         ``decoder.embed_tokens.embeddings.{i}.0.weight``
``in_emb.emb_projs.{i}``                 ``decoder.embed_tokens.embeddings.{i}.1.weight``
``out_emb.out_layers.0.weight``, and     ``decoder.adaptive_softmax.head.0.weight``, each row multiplied by
``out_emb.cluster_proj.weight``          ``out_emb.out_projs.0``; the clusters in reverse order
``out_emb.out_projs.{i}``, i > 0         ``decoder.adaptive_softmax.tail.{i - 1}.0.weight``, transposed
``out_emb.out_layers.{i}.weight``        ``decoder.adaptive_softmax.tail.{i - 1}.2.weight``
``out_emb.out_layers.0.bias``, and       ``decoder.adaptive_softmax.head.1.bias``
``out_emb.cluster_proj.bias``
``out_emb.out_layers.{i}.bias``          ``decoder.adaptive_softmax.tail.{i - 1}.3.bias``
=======================================  ===============================================================================

All but the first two are adaptive embeddings and an adaptive softmax with clusters i.
"""

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.papers.import_original.layers import Source
from fb_fairseq.trained_model import TrainedModel

# Bias of symbols that are never to be predicted: exp() of it is zero, and fp16 can represent it.
NEVER = -1e4


def embedding_tables(source: Source) -> list[Tensor]:
    """The embeddings of all symbols: one table or, if they are adaptive, one for each cluster, the shortlist first."""
    clusters = sum(name.startswith("in_emb.emb_layers.") for name in source.state)
    return [source.take(f"in_emb.emb_layers.{i}.weight") for i in range(clusters)] or [source.take("in_emb.weight")]


def import_embeddings(source: Source, indices: list[int], dictionary_size: int, trained: TrainedModel) -> None:
    """Import embeddings and output layer, adaptive or not, for a fairseq dictionary of this size, in which the original
    symbols have these indices. Symbols that the original does not know are never predicted.

    Args:
        source: the checkpoint, whose tensors are taken.
        indices: in the dictionary, of each original symbol.
        dictionary_size: number of its symbols.
        trained: gets the parameters.
    """
    if "in_emb.emb_layers.0.weight" in source:
        import_adaptive(source, indices, dictionary_size, trained)
        return
    output = "out.out_emb" if "out.out_emb.weight" in source else "out_emb"
    bias = source.take(f"{output}.bias")
    parameters = {
        "decoder.embed_tokens.weight": scatter_rows(source.take("in_emb.weight"), indices, dictionary_size),
        "decoder.output_projection.weight": scatter_rows(source.take(f"{output}.weight"), indices, dictionary_size),
        "decoder.output_projection.bias": scatter_rows(bias, indices, dictionary_size, fill=NEVER),
    }
    trained.parameters.update(parameters)


def scatter_rows(rows: Tensor, indices: list[int], number: int, fill: float = 0.0) -> Tensor:
    """A tensor of ``number`` rows: these ones at their indices, all others filled with a value."""
    result = rows.new_full((number, *rows.shape[1:]), fill)
    result[indices] = rows
    return result


def cutoffs_of(path: str, tables: list[Tensor], indices: list[int], dictionary_size: int) -> list[int]:
    """The ends of the clusters of an adaptive softmax in the new dictionary, the last of which is its size. fairseq's
    special symbols join the shortlist; symbols of the other clusters must keep their places.

    Args:
        path: the checkpoint, for messages.
        tables: its embeddings, one for each cluster.
        indices: of its symbols, in the new dictionary.
        dictionary_size: of the new dictionary.
    """
    sizes = list(map(len, tables))
    sizes[0] += dictionary_size - sum(sizes)
    cutoffs = list(accumulate(sizes))
    tails = list(range(cutoffs[0], cutoffs[-1]))
    if indices[len(indices) - len(tails) :] != tails or len(set(indices)) < len(indices):
        raise UserError(
            f"{path}: fairseq's special symbols would change the clusters of the adaptive softmax; import needs "
            "them among the most frequent symbols of --dict"
        )
    return cutoffs


def import_adaptive(source: Source, indices: list[int], dictionary_size: int, trained: TrainedModel) -> None:
    """Import adaptive embeddings and an adaptive softmax with biases. Embeddings and softmax become untied:
    adaptive-span projects the shortlist too, which fairseq's softmax does not. That projection is multiplied into the
    weights of the head. Special symbols that the original does not know join the shortlist, and are never
    predicted.
    """
    tables = embedding_tables(source)
    if len(tables) == 1:
        raise UserError(f"{source.path}: its adaptive embeddings have one cluster; import takes two or more")
    layers = range(len(tables))
    words = [source.take(f"out_emb.out_layers.{i}.weight") for i in layers]
    projections = [source.take(f"out_emb.out_projs.{i}") for i in layers]
    biases = [source.take(f"out_emb.out_layers.{i}.bias") for i in layers]
    clusters = source.take("out_emb.cluster_proj.weight")
    cluster_bias = source.take("out_emb.cluster_proj.bias")
    cutoffs = cutoffs_of(source.path, tables, indices, dictionary_size)

    def shortlist(rows: Tensor, fill: float = 0.0) -> Tensor:
        return scatter_rows(rows, indices[: len(tables[0])], cutoffs[0], fill)

    # The original's head has the clusters' logits in reverse order: that of cluster 1 comes last.
    head = torch.cat([shortlist(words[0]), clusters.flip(0)]) @ projections[0].t()
    softmax = "decoder.adaptive_softmax"
    head_bias = torch.cat([shortlist(biases[0], NEVER), cluster_bias.flip(0)])
    parameters = {f"{softmax}.head.0.weight": head, f"{softmax}.head.1.bias": head_bias}
    for i, table in enumerate(tables):
        embedding = f"decoder.embed_tokens.embeddings.{i}"
        parameters[f"{embedding}.0.weight"] = table if i else shortlist(table)
        parameters[f"{embedding}.1.weight"] = source.take(f"in_emb.emb_projs.{i}")
        if i:
            tail = f"{softmax}.tail.{i - 1}"
            parameters[f"{tail}.0.weight"] = projections[i].t()
            parameters[f"{tail}.2.weight"] = words[i]
            parameters[f"{tail}.3.bias"] = biases[i]
    trained.parameters.update(parameters)
    trained.options.update(adaptive_options(tables, cutoffs, source.take("in_emb.emb_projs.0").shape[0]))


def adaptive_options(tables: list[Tensor], cutoffs: list[int], width: int) -> dict[str, Any]:
    """The options of a model with such embeddings.

    Args:
        tables: the embeddings, one for each cluster.
        cutoffs: see ``cutoffs_of``.
        width: of the model.
    """
    factor = width / tables[1].shape[1]
    cutoff = ",".join(map(str, cutoffs[:-1]))
    return {
        "adaptive_input": True,
        "adaptive_input_cutoff": cutoff,
        "adaptive_softmax_cutoff": cutoff,
        "adaptive_softmax_bias": True,
        "adaptive_input_factor": factor,
        "adaptive_softmax_factor": factor,
    }
