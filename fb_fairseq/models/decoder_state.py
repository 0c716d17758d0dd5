"""What the feedback decoder keeps while it generates: its memory, and keys and values of the encoder's output.

All hypotheses of a sentence attend to the same encoder output, so its keys and values are kept once per sentence. The
rows of a batch are ordered as in beam search: n hypotheses of the first sentence, n of the second, and so on.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``. In an ``EncoderContext`` B counts sentences.
"""

import math
from functools import reduce
from itertools import groupby
from typing import Callable, List, Sequence

import torch
from torch import Tensor

from fb_fairseq.modules.ring import MemoryRing
from fb_fairseq.ops.feedback.types import EncoderContext


def group_size(rows: Sequence) -> int:
    """The largest n for which the rows are groups of n consecutive equal ones: 2 for ``a a b b b b``."""
    return reduce(math.gcd, (len(list(same)) for _, same in groupby(rows)), 0) or 1


def first_rows(out_CBD: Tensor, padding_BC: List[Tensor]) -> Tensor:
    """The first row of each sentence in an encoder's output whose rows may repeat: row numbers [sentences].

    Args:
        padding_BC: fairseq's list with one padding mask, or an empty list.
    """
    B = out_CBD.shape[1]
    different = (out_CBD[:, 1:] != out_CBD[:, :-1]).flatten(2).any(2).any(0)
    for padding in padding_BC:
        different = different | (padding[1:] != padding[:-1]).any(1)
    sentence_B = torch.cat([different.new_zeros(min(B, 1)), different]).cumsum(0)
    return torch.arange(0, B, group_size(sentence_B.tolist()), device=out_CBD.device)


class DecoderState:
    """The state of decoding.

    Args:
        ring: the decoder's memory, empty.
        encoder_out: the dictionary that fairseq's encoder returns, or None without an encoder.
        contexts: computes each layer's keys and values from an encoder's output and its padding masks.

    Attributes:
        encoder: each layer's keys and values of the encoder's output; empty without an encoder.
        hypotheses: number of consecutive rows per sentence.
    """

    def __init__(self, ring: MemoryRing, encoder_out, contexts: Callable[[Tensor, List[Tensor]], List[EncoderContext]]):
        self.ring = ring
        self.encoder: List[EncoderContext] = []
        self.hypotheses = 1
        if encoder_out is not None and encoder_out["encoder_out"]:
            out_CBD, padding = encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"]
            rows = first_rows(out_CBD, padding)
            self.hypotheses = out_CBD.shape[1] // max(len(rows), 1)
            for context in contexts(out_CBD.index_select(1, rows), [mask.index_select(0, rows) for mask in padding]):
                keys, values = (adjacent_slots(x.to(out_CBD.dtype)) for x in (context.keys_CBHE, context.values_CBHE))
                self.encoder.append(EncoderContext(keys, values, context.padding_BC))

    def reorder(self, order: Tensor) -> None:
        """Take the rows in another order; some may be taken more than once, others not at all.

        In beam search rows move within their sentence, and the keys and values of the encoder's output stay as they
        are, until sentences are finished and leave the batch.
        """
        self.ring.reorder(order)
        if not self.encoder:
            return
        sentences = order // self.hypotheses
        rows = torch.arange(self.encoder[0].keys_CBHE.shape[1] * self.hypotheses, device=order.device)
        if torch.equal(sentences, rows // self.hypotheses):
            return
        self.hypotheses = group_size(sentences.tolist())
        sentences = sentences[:: self.hypotheses]
        self.encoder = [
            EncoderContext(
                adjacent_slots(keys.index_select(1, sentences)),
                adjacent_slots(values.index_select(1, sentences)),
                None if padding is None else padding.index_select(0, sentences),
            )
            for keys, values, padding in self.encoder
        ]


def adjacent_slots(x_CBHE: Tensor) -> Tensor:
    """The same tensor, laid out in memory as [B, H, C, E]: attention reads the slots of a sentence and head at once."""
    return x_CBHE.permute(1, 2, 0, 3).contiguous().permute(2, 0, 1, 3)
