"""The state of a decoder with an encoder.

All hypotheses of a sentence attend to the same encoder output, so its keys and values are kept once per sentence. The
rows of a batch are ordered as in beam search: n hypotheses of the first sentence, n of the second, and so on.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``. In an ``EncoderContext`` B counts sentences.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import groupby

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.types import EncoderContext


def group_size(rows: Sequence) -> int:
    """The largest n for which the rows are groups of n consecutive equal ones: 2 for ``a a b b b b``."""
    return reduce(math.gcd, (len(list(same)) for _, same in groupby(rows)), 0) or 1


def first_rows(out_CBD: Tensor, padding_BC: Tensor | None) -> Tensor:
    """The first row of each sentence in an encoder's output whose rows may repeat: row numbers [sentences]."""
    B = out_CBD.shape[1]
    different = (out_CBD[:, 1:] != out_CBD[:, :-1]).flatten(2).any(2).any(0)
    if padding_BC is not None:
        different = different | (padding_BC[1:] != padding_BC[:-1]).any(1)
    sentence_B = torch.cat([different.new_zeros(min(B, 1)), different]).cumsum(0)
    return torch.arange(0, B, group_size(sentence_B.tolist()), device=out_CBD.device)


class DecoderState:
    """The state of decoding.

    Args:
        ring: the decoder's memory, empty.
        out_CBD: the encoder's output; None without an encoder.
        padding_BC: True where the source is padded; None: nowhere.
        contexts: computes each layer's keys and values from an encoder's output and its padding.

    Attributes:
        encoder: each layer's keys and values of the encoder's output; empty without an encoder.
        hypotheses: number of consecutive rows per sentence.
    """

    def __init__(
        self,
        ring: MemoryRing,
        out_CBD: Tensor | None,
        padding_BC: Tensor | None,
        contexts: Callable[[Tensor, Tensor | None], list[EncoderContext]],
    ):
        self.ring = ring
        self.encoder: list[EncoderContext] = []
        self.hypotheses = 1
        if out_CBD is not None:
            rows = first_rows(out_CBD, padding_BC)
            self.hypotheses = out_CBD.shape[1] // max(len(rows), 1)
            padding_BC = None if padding_BC is None else padding_BC.index_select(0, rows)
            for context in contexts(out_CBD.index_select(1, rows), padding_BC):
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
    """Lay a tensor out in memory as [B, H, C, E]: attention reads the slots of a sentence and head at once."""
    return x_CBHE.permute(1, 2, 0, 3).contiguous().permute(2, 0, 1, 3)
