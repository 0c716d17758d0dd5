"""Read from checkpoints what models have learned: layer weights, adaptive spans, attention on persistent vectors.

fairseq is imported only in the functions that need it, so that learning curves can be drawn without it.
"""

import os
from typing import List

from fb_fairseq.errors import UserError

MEASURED_TOKENS = 4096  # enough for stable means, and a few seconds on a CPU
BLOCK_STEPS = 64  # steps that are computed together; the length of a block does not change the result


def load_checkpoint(path: str) -> dict:
    """See ``fb_fairseq.tensor_files.load_checkpoint``."""
    from fb_fairseq import patches, tensor_files  # noqa: F401  patches: the safe globals

    return tensor_files.load_checkpoint(path)


def model_options(saved: dict) -> dict:
    """The options of a checkpoint's model by name."""
    options = saved["cfg"]["model"]
    return options if isinstance(options, dict) else vars(options)  # a Namespace


def layer_weights(path: str) -> List[float]:
    """The shares of the embedding and of each layer in the feedback memory: softmax(w) (arXiv 2002.09402v3, Eq. 1).

    Raises:
        UserError: the model has no learned weights, or separate ones for each layer.
    """
    import torch

    logits = load_checkpoint(path)["model"].get("decoder.memory.layer_weights")
    if logits is None or logits.dim() != 1:
        raise UserError(
            f"--layer-weights {path}: its memory has no learned weights; give a checkpoint of "
            "--memory-composition weighted"
        )
    return torch.softmax(logits.float(), 0).tolist()


def adaptive_spans(path: str) -> List[List[float]]:
    """How many steps back each head reaches, ramp included, by layer and head.

    Raises:
        UserError: the model was trained without ``--adaptive-span``.
    """
    saved = load_checkpoint(path)
    model, options = saved["model"], model_options(saved)
    learned = []
    while f"decoder.layers.{len(learned)}.self_attn.adaptive_span.z" in model:
        learned.append(model[f"decoder.layers.{len(learned)}.self_attn.adaptive_span.z"].float())
    if not learned:
        raise UserError(f"--spans {path}: its spans are fixed; give a checkpoint of --adaptive-span")
    S, ramp = options["attention_span"], options["adaptive_span_ramp"]
    return [(z * S + ramp).clamp(max=S).tolist() for z in learned]


def persistent_shares(
    path: str, data: str, split: str, tokens: int = MEASURED_TOKENS, block: int = BLOCK_STEPS
) -> List[List[float]]:
    """The share of attention on persistent vectors, by layer and head.

    Args:
        path: checkpoint of an ``all_attention_lm``.
        data: folder of binarised text.
        split: split of it that is read, as one stream.
        tokens: number of tokens, from the beginning of the split, over which shares are averaged.
        block: number of steps computed together.

    Raises:
        UserError: the split is missing, or the model has no persistent vectors.
        ValueError: persistent vectors and context do not share a softmax.
    """
    import torch

    from fb_fairseq import patches  # noqa: F401  before fairseq is imported: the warning filters

    # isort: split
    from fairseq import checkpoint_utils
    from fairseq.data import data_utils

    import fb_fairseq.models  # noqa: F401  --user-dir does this in fairseq's commands
    import fb_fairseq.tasks  # noqa: F401
    from fb_fairseq.streams.corpus import Corpus

    if not os.path.exists(os.path.join(data, f"{split}.idx")):
        raise UserError(f"--data {data}: has no binarised {split} split; give another folder, or another --split")
    if not any(".persistent_memory." in name for name in load_checkpoint(path)["model"]):
        raise UserError(f"--persistent-shares {path}: has no persistent vectors; give a checkpoint of all_attention_lm")
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([path], arg_overrides={"data": data})
    decoder = models[0].eval().decoder
    dataset = data_utils.load_indexed_dataset(os.path.join(data, split), task.source_dictionary)
    corpus = Corpus(dataset, task.source_dictionary.eos())
    total, state, tokens = 0.0, None, min(tokens, len(corpus))
    with torch.no_grad():
        for start in range(0, tokens, block):
            x_TBD = decoder.embed(corpus[start : min(start + block, tokens)][None], start).transpose(0, 1)
            shares_LH, state = decoder.stack.persistent_shares(x_TBD, state)
            total = total + shares_LH * len(x_TBD)
    return (total / tokens).tolist()
