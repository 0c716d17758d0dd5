"""Keys and values of steps, as kernels read and write them: of a block, or of a ring in decoding."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils import _pytree as pytree

from fb_fairseq.ops.attention import MASKED_FRACTION, Positions, SpanTerms
from fb_fairseq.ops.feedback.block import EncoderSlots
from fb_fairseq.ops.feedback.triton.launches import AttendedSlots, keep_of
from fb_fairseq.ops.feedback.types import FeedbackDropouts, Sizes, one_or_own
from fb_fairseq.ops.layers import Projection


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
    """The slots that steps attend to, and to which they write.

    Attributes:
        sizes: of the block; of a ring C is the number of slots.
        keys_IGCE, values_IGCE: the slots of the memory; ``sets``: the same, by launch.
        positions: see ``ComputeWeights``.
        log_masks: each layer's adaptive spans; see ``log_masks``.
        reaches: how many slots back each layer reaches.
        encoder: keys and values of the encoder's output, by layer; ``streams``: how many consecutive streams each
            sentence serves.
        dropouts: of the steps.
        age_TB: at each step, the age of each stream's episode.
        seen_1: on a ring, the number of steps so far, on the device.
    """

    sizes: Sizes
    keys_IGCE: Tensor
    values_IGCE: Tensor
    sets: Sequence[LaunchedSets]
    positions: Positions
    log_masks: Sequence[Tensor | None]
    reaches: Sequence[int]
    encoder: Sequence[EncoderSlots]
    dropouts: FeedbackDropouts = FeedbackDropouts()
    age_TB: Tensor | None = None
    seen_1: Tensor | None = None
    streams: int = 1

    def of_memory(self, l: int, t: int) -> AttendedSlots:
        """The slots of the memory that layer l attends to at step t."""
        s, i = self.sizes, one_or_own(l, self.sizes.I)
        n = min(s.C + t, self.reaches[l])
        keep, scale = keep_of(self.dropouts.attention_LTBHS, l, t)
        return AttendedSlots(
            self.keys_IGCE[i],
            self.values_IGCE[i],
            n,
            first=s.C + t - n,
            positions=self.positions,
            log_mask_HS=self.log_masks[l],
            age_B=None if self.age_TB is None else self.age_TB[t],
            keep=keep,
            keep_scale=scale,
            seen_1=self.seen_1,
            span=s.S,
        )

    def of_encoder(self, l: int, t: int) -> AttendedSlots:
        """The encoder's output, as layer l attends to it at step t."""
        keys, values, padding_BC = self.encoder[l]
        keep, scale = keep_of(self.dropouts.cross_LTBHC, l, t)
        return AttendedSlots(
            keys,
            values,
            keys.shape[1],
            padding=None if padding_BC is None else padding_BC.view(torch.uint8),
            keep=keep,
            keep_scale=scale,
            streams=self.streams,
        )


def log_masks(spans: Sequence[SpanTerms | None], span: int, dtype: torch.dtype) -> list[Tensor | None]:
    """Logarithms of adaptive spans [H, S]: a very low number where a layer does not reach S steps."""
    lowest = torch.finfo(dtype).min * MASKED_FRACTION
    found: list[Tensor | None] = []
    for terms in spans:
        mask_HS = None if terms is None else terms.log_mask_HS.to(dtype)
        found.append(mask_HS if mask_HS is None else pad(mask_HS, (span - mask_HS.shape[1], 0), value=lowest))
    return found


def stacked(projections: Sequence[Projection]) -> Projection:
    """Projections as one, whose tensors have a dimension more; of a single one, nothing is copied."""

    def stack(*same: Tensor | None) -> Tensor | None:
        if same[0] is None:
            return None
        return same[0][None] if len(same) == 1 else torch.stack(same)

    return pytree.tree_map(stack, *projections)
