"""What the feedback decoder keeps while it generates: its memory, and keys and values of the encoder's output.

Hypotheses of one sentence see the same encoder output. It is kept once a sentence: beam search's rows are n hypotheses
of the first sentence, n of the second, and so on.
"""

import math
from functools import reduce
from itertools import groupby
from typing import Callable, List, Sequence

import torch
from torch import Tensor

from fb_fairseq.modules.ring import MemoryRing
from fb_fairseq.ops.feedback.types import EncoderContext


def shared_by(rows: Sequence) -> int:
    """The largest n so that each n rows, from the first on, are the same."""
    return reduce(math.gcd, (len(list(same)) for _, same in groupby(rows)), 0) or 1


def sentences_of(out_CBD: Tensor, padding_BC: List[Tensor]) -> Tensor:
    """Rows of an encoder's output, one for each of its sentences: [sentences]."""
    B = out_CBD.shape[1]
    different = (out_CBD[:, 1:] != out_CBD[:, :-1]).flatten(2).any(2).any(0)
    for padding in padding_BC:
        different = different | (padding[1:] != padding[:-1]).any(1)
    number = torch.cat([different.new_zeros(min(B, 1)), different]).cumsum(0)  # of the sentence, by row
    return torch.arange(0, B, shared_by(number.tolist()), device=out_CBD.device)


class DecoderState:
    """The decoder's memory, and what each layer sees of the encoder.

    Args:
        contexts: from an encoder's output of the sentences to the layers' keys and values.
    """

    def __init__(self, ring: MemoryRing, encoder_out, contexts: Callable[[Tensor, List[Tensor]], List[EncoderContext]]):
        self.ring, self.encoder, self.hypotheses = ring, [], 1  # of a sentence
        if encoder_out is not None and encoder_out["encoder_out"]:
            out_CBD, padding = encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"]
            rows = sentences_of(out_CBD, padding)
            self.hypotheses = out_CBD.shape[1] // max(len(rows), 1)
            self.encoder = [
                # A sentence's and head's positions side by side, so that attention reads them in one go.
                EncoderContext(*(slots_last(x.to(out_CBD.dtype)) for x in context[:2]), context.padding_BC)
                for context in contexts(out_CBD.index_select(1, rows), [mask.index_select(0, rows) for mask in padding])
            ]

    def reorder(self, order: Tensor) -> None:
        """Take the rows in another order, some more than once. In beam search each moves within its sentence, until
        some sentences are finished."""
        self.ring.reorder(order)
        if not self.encoder:
            return
        sentences = order // self.hypotheses
        rows = torch.arange(self.encoder[0].keys_CBHE.shape[1] * self.hypotheses, device=order.device)
        if torch.equal(sentences, rows // self.hypotheses):
            return
        self.hypotheses = shared_by(sentences.tolist())
        sentences = sentences[:: self.hypotheses]
        self.encoder = [
            EncoderContext(
                slots_last(keys.index_select(1, sentences)),
                slots_last(values.index_select(1, sentences)),
                None if padding is None else padding.index_select(0, sentences),
            )
            for keys, values, padding in self.encoder
        ]


def slots_last(x_CBHE: Tensor) -> Tensor:
    """The same, in memory [B, H, C, E]."""
    return x_CBHE.permute(1, 2, 0, 3).contiguous().permute(2, 0, 1, 3)
