"""What the kernels' launches of a block have in common: types, tiles, and pointers into the block's tensors.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fb_fairseq.ops.feedback.torch.block import Room, Sizes
from fb_fairseq.ops.feedback.triton import memory, products
from fb_fairseq.ops.feedback.triton.tiles import (
    ProductTile,
    attention_tile,
    floor_power_of_2,
    gpu_of,
    power_of_2,
    product_tile,
)
from fb_fairseq.ops.layers import Affine, Dropout


class Source(NamedTuple):
    """What a step's queries attend to.

    Attributes:
        keys, values: [G, slots, E], contiguous.
        n, first: number of slots and the first of them.
        positions: tables of keys and of values by distance, [S, E] each, distance 1 last; None where there are none.
        log_mask_HS: logarithms of the span masks by distance.
        reach_B: how many steps back each stream may look.
        padding: bytes [B, C]: slots that a stream does not see.
        keep: dropout of the weights [G, W] as bytes, whose last n columns belong to the slots; its scale.
        seen_1, span: on a ring, where step t is in slot t mod ``span``: the number of steps so far, on the device.
        streams: how many consecutive streams each of the keys and values serve.
    """

    keys: Tensor
    values: Tensor
    n: int
    first: int
    positions: Tuple[Optional[Tensor], Optional[Tensor]] = (None, None)
    log_mask_HS: Optional[Tensor] = None
    reach_B: Optional[Tensor] = None
    padding: Optional[Tensor] = None
    keep: Optional[Tensor] = None
    keep_scale: float = 1.0
    seen_1: Optional[Tensor] = None
    span: int = 1
    streams: int = 1


class Launcher:
    """Sizes and types of a block's kernels.

    Args:
        dtype: of matrices; wide: of sums.
        slots: the most that a step attends to.
    """

    def __init__(self, sizes: Sizes, dtype: torch.dtype, wide: torch.dtype, device: torch.device, slots: int):
        s = self.sizes = sizes
        self.itemsize, self.gpu = dtype.itemsize, gpu_of(device)
        self.WIDE = tl.float64 if wide == torch.float64 else tl.float32
        tf32 = dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
        self.P = "tf32" if tf32 or dtype in (torch.float16, torch.bfloat16) else "ieee"
        self.attention = attention_tile(s.G, slots, s.E, self.itemsize, self.gpu)
        self.BE = power_of_2(s.E)
        self.early = self.gpu.starts_early and device.type == "cuda" and hasattr(tl.extra.cuda, "gdc_wait")
        self.scale = s.E**-0.5
        self._tiles: Dict[Tuple[int, int, bool, bool], ProductTile] = {}

    def tile(self, kernel, columns: int, inner: int) -> ProductTile:
        """The tile of a product; see ``product_tile``."""
        key = columns, inner, kernel in WITH_NORM, kernel in RICH
        if key not in self._tiles:
            self._tiles[key] = product_tile(self.sizes.B, columns, inner, self.itemsize, self.gpu, *key[2:])
        return self._tiles[key]

    def launch(self, kernel, grid: Tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        """Launch a kernel; with ``early``, while the one before it ends: it waits before it reads anything."""
        options = {"launch_pdl": True} if self.early else {}
        kernel[grid](*arguments, WIDE=self.WIDE, PDL=self.early, **constants, **options)

    def product(self, kernel, columns: int, inner: int, *arguments: Any, sets: int = 1, **constants: Any) -> None:
        """Launch a product's kernel: a program for each tile."""
        tile = self.tile(kernel, columns, inner)
        grid = (triton.cdiv(self.sizes.B, tile.BM), triton.cdiv(columns, tile.BN), sets)
        self.launch(kernel, grid, *arguments, P=self.P, **constants, **tile.options())

    def rows(self, kernel, *arguments: Any, sets: int = 1, **constants: Any) -> None:
        """Launch a kernel that goes through whole rows."""
        BM, BK = 4, min(256, power_of_2(self.sizes.D))
        grid = (triton.cdiv(self.sizes.B, BM), sets)
        self.launch(kernel, grid, *arguments, BM=BM, BK=BK, num_warps=4, **constants)

    def attend(self, kernel, source: Source, before: tuple, after: tuple) -> None:
        """Launch a kernel of ``attention.py``; ``before`` and ``after`` are its arguments around the source's."""
        s, tile, splits = self.sizes, self.attention, self.splits(source)
        S = next((len(table) for table in source.positions if table is not None), 0)
        if source.log_mask_HS is not None:
            S = source.log_mask_HS.shape[-1]
        self.launch(
            kernel, (s.G, splits), *before, source.keys, source.values, *source.positions, source.log_mask_HS,
            source.reach_B, source.padding, source.keep, source.seen_1, *after, s.G, source.n, source.keys.shape[-2],
            source.first, S, 0 if source.padding is None else source.padding.shape[1],
            0 if source.keep is None else source.keep.shape[-1], source.span, source.keep_scale, self.scale, H=s.H,
            E=s.E, PER=source.streams, SPLITS=splits, BC=tile.BC, BE=self.BE, P=self.P, STAGES=tile.stages,
            num_warps=tile.warps,
        )  # fmt: skip

    def splits(self, source: Source) -> int:
        """In how many parts a source's slots are read."""
        return min(self.attention.splits, floor_power_of_2(triton.cdiv(source.n, self.attention.BC)))


class Parts(NamedTuple):
    """Room for parts of the attention over many slots, which several programs share; None where one program has all.

    Attributes:
        sums, tops, totals: sums of values, the largest scores, and sums of weights, by part.
        arrived: zeros, for counting.
    """

    sums: Optional[Tensor] = None
    tops: Optional[Tensor] = None
    totals: Optional[Tensor] = None
    arrived: Optional[Tensor] = None

    @classmethod
    def made(cls, launcher: Launcher, room: Room) -> "Parts":
        """The room that a launcher's kernels need."""
        splits, s = launcher.attention.splits, room.sizes
        if splits == 1:
            return cls()
        tops, totals = (room.buffers.empty(splits, s.G, dtype=room.wide) for _ in range(2))
        sums = room.buffers.empty(splits, s.G, s.E, dtype=room.wide)
        return cls(sums, tops, totals, room.buffers.zeros(s.G, dtype=torch.int32))


# Kernels whose prologue holds rows of several tensors, and those whose prologue has a norm.
RICH = (products.back_product, memory.remember)
WITH_NORM = (products.normed_product, *RICH)


def keep_of(mask: Optional[Dropout], *index: int) -> Tuple[Optional[Tensor], float]:
    """A part of a dropout mask as bytes, and its scale."""
    return (None, 1.0) if mask is None else (mask.keep[index].view(torch.uint8), mask.scale)


def contiguous(affine: Optional[Affine]) -> Tuple[Optional[Tensor], Optional[Tensor]]:
    """Weight and bias, contiguous."""
    return (None, None) if affine is None else tuple(None if x is None else x.contiguous() for x in affine)
