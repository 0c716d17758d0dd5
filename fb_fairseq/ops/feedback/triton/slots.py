"""Keys and values of steps, as kernels read and write them: of a block, or of a ring in decoding."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils import _pytree as pytree

from fb_fairseq.ops.attention import Positions
from fb_fairseq.ops.feedback.block import EncoderSlots
from fb_fairseq.ops.feedback.triton.launches import AttendedSlots, keep_of
from fb_fairseq.ops.feedback.types import FeedbackDropouts, Sizes, one_or_own
from fb_fairseq.ops.layers import Projection
from fb_fairseq.ops.span_masks import MASKED_FRACTION, SpanTerms


class LaunchedSets(NamedTuple):
    """Sets of keys and values that one launch writes.

    Attributes:
        mix_KA, memory_KTBD: of one memory for all sets, or of each one's own.
        projections: one for all sets, or each one's own; see ``stacked``.
        keys_IGCE, values_IGCE: contiguous.
    """

    mix_KA: Tensor
    memory_KTBD: Tensor
    projections: Projection
    keys_IGCE: Tensor
    values_IGCE: Tensor


class Slots(NamedTuple):
    """The slots that steps attend to, and to which they write: of a block, or of a ring in decoding.

    Attributes:
        sizes: of the block; of a ring C is the number of slots, and S its span.
        keys_IGCE, values_IGCE: the slots of the memory.
        sets: the same, by launch.
        positions: see ``ComputeWeights``.
        log_masks: each layer's adaptive spans; see ``padded_log_masks``.
        reaches: how many slots back each layer reaches.
        age_TB: at each step, the age of each stream's episode; None: they look as far back as the slots go.
        dropouts: of a block's steps.
        seen_1: of a ring: the number of steps so far, on the device. None: the slots are a block's.
        encoder: keys and values of the encoder's output, by layer; empty without one.
        streams: with an encoder, how many consecutive streams each of its sentences serves.
    """

    sizes: Sizes
    keys_IGCE: Tensor
    values_IGCE: Tensor
    sets: Sequence[LaunchedSets]
    positions: Positions
    log_masks: Sequence[Tensor | None]
    reaches: Sequence[int]
    age_TB: Tensor | None
    dropouts: FeedbackDropouts = FeedbackDropouts()
    seen_1: Tensor | None = None
    encoder: Sequence[EncoderSlots] = ()
    streams: int = 1

    def of_memory(self, l: int, t: int) -> AttendedSlots:
        """The slots of the memory that layer l attends to at step t."""
        s, i = self.sizes, one_or_own(l, self.sizes.I)
        n = min(s.C + t, self.reaches[l])
        return AttendedSlots(
            self.keys_IGCE[i],
            self.values_IGCE[i],
            n,
            first=s.C + t - n,
            positions=self.positions,
            log_mask_HS=self.log_masks[l],
            age_B=None if self.age_TB is None else self.age_TB[t],
            keep=keep_of(self.dropouts.attention_LTBHS, l, t),
            seen_1=self.seen_1,
            span=s.S,
        )

    def of_encoder(self, l: int, t: int) -> AttendedSlots:
        """The encoder's output, as layer l attends to it at step t."""
        keys, values, padding_BC = self.encoder[l]
        return AttendedSlots(
            keys,
            values,
            keys.shape[1],
            padding=None if padding_BC is None else padding_BC.view(torch.uint8),
            keep=keep_of(self.dropouts.cross_LTBHC, l, t),
            streams=self.streams,
        )


def padded_log_masks(spans: Sequence[SpanTerms | None], span: int, dtype: torch.dtype) -> list[Tensor | None]:
    """Logarithms of the layers' adaptive spans [H, S], the newest slot last.

    Args:
        spans: of the layers; None where all heads reach S steps.
        span: S.
        dtype: of the result.

    Returns:
        For each layer its logarithms, with a very low number for slots that it does not reach; or None.
    """
    lowest = torch.finfo(dtype).min * MASKED_FRACTION

    def padded(terms: SpanTerms | None) -> Tensor | None:
        if terms is None:
            return None
        log_mask_HS = terms.log_mask_HS.to(dtype)
        return pad(log_mask_HS, (span - log_mask_HS.shape[1], 0), value=lowest)

    return [padded(terms) for terms in spans]


def stacked(projections: Sequence[Projection]) -> Projection:
    """Projections as one, whose tensors have a dimension more; of a single one, nothing is copied."""

    def stack(*same: Tensor | None) -> Tensor | None:
        if same[0] is None:
            return None
        return same[0][None] if len(same) == 1 else torch.stack(same)

    return pytree.tree_map(stack, *projections)
