"""Rows and source positions of captured decoding steps, rounded up so that few shapes occur."""

from collections.abc import Sequence

import torch

from fb_fairseq.ops.feedback.types import EncoderContext

SOURCE_MULTIPLE = 32  # source positions are padded to a multiple of this


def hypotheses(rows: int, encoder: Sequence[EncoderContext]) -> int:
    """The number of consecutive rows that each sentence of the encoder serves; 1 without an encoder."""
    return rows // max(1, encoder[0].keys_CBHE.shape[1]) if encoder else 1


def padded_rows(rows: int, encoder: Sequence[EncoderContext]) -> int:
    """The number of rows of a captured step: sentences are rounded up to a power of two."""
    per_sentence = hypotheses(rows, encoder)
    return per_sentence * 2 ** (rows // per_sentence - 1).bit_length()


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple that is not less than a number."""
    return -(-number // multiple) * multiple


def padded_context(context: EncoderContext, sentences: int) -> EncoderContext:
    """Memory for keys and values of an encoder's output, in the layout [B, H, C, E], and for their padding."""
    C, _, H, E = context.keys_CBHE.shape
    C = round_up(C, SOURCE_MULTIPLE)
    keys, values = (context.keys_CBHE.new_zeros(sentences, H, C, E).permute(2, 0, 1, 3) for _ in range(2))
    return EncoderContext(keys, values, torch.zeros(sentences, C, dtype=torch.bool, device=keys.device))
