"""``generate`` with a memory that was kept from another call.

transformers' convention is to give the whole text, of which the part in the memory is cut off by its length. A memory
of constant size is kept where the text before it is not: so the new tokens alone are understood too.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor
from transformers import GenerationConfig

from fb_fairseq.errors import UserError
from fb_fairseq.transformers.cache import StreamCache
from fb_fairseq.transformers.configuration import PAD


def stand_ins(
    inputs: Optional[Tensor], options: Dict[str, Any], config: GenerationConfig
) -> Tuple[Optional[Tensor], int]:
    """The input of ``generate``, with padding in the place of the tokens that are in the memory, which gets a row for
    each hypothesis.

    Args:
        config: what holds where the options say nothing.
        inputs: the tokens, if they are not among the options.
        options: the arguments of ``generate`` by their names; ``attention_mask`` and ``max_length`` are changed, and
            ``input_ids`` is taken out.

    Returns:
        The tokens, and how many of them stand for others, which are to be cut off the result; 0: nothing has changed.

    Raises:
        UserError: the memory has another number of texts.
    """
    cache = options.get("past_key_values", options.get("cache"))
    tokens = options.get("input_ids") if inputs is None else inputs
    if not isinstance(cache, StreamCache) or not cache.position or not torch.is_tensor(tokens):
        return inputs, 0
    if len(tokens) != cache.texts:
        raise UserError(f"past_key_values: holds {cache.texts} texts, not {len(tokens)}; give as many")
    config = options.get("generation_config") or config
    rows = max(options.get(name) or getattr(config, name, None) or 1 for name in ("num_beams", "num_return_sequences"))
    whole = cache.begins(tokens)
    if rows > 1:
        cache.batch_repeat_interleave(rows)
    if whole:
        return inputs, 0
    past, mask = cache.position, options.get("attention_mask")
    options.pop("input_ids", None)
    mask = torch.ones_like(tokens) if mask is None else mask
    if mask.shape[1] == tokens.shape[1]:
        mask = torch.cat([mask.new_ones(len(mask), past), mask], 1)
    options["attention_mask"] = mask
    if options.get("max_length") is not None:
        options["max_length"] += past
    return torch.cat([tokens.new_full((len(tokens), past), PAD), tokens], 1), past
