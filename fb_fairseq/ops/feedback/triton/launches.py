"""Launches of a block's kernels: their grids, types, and pointers into the block's tensors."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fb_fairseq.ops.dropout import Dropout
from fb_fairseq.ops.feedback.record import Allocator
from fb_fairseq.ops.feedback.triton import memory, products, products_backward
from fb_fairseq.ops.feedback.triton.tiles import (
    attention_tile,
    floor_power_of_2,
    gpu_of,
    power_of_2,
    product_tile,
)
from fb_fairseq.ops.feedback.types import Sizes

# Kernels whose prologue holds rows of several tensors, and those whose prologue has a norm.
RICH = (products_backward.back_product, memory.remember)
WITH_NORM = (products.normed_product, *RICH)


class AttendedSlots(NamedTuple):
    """Slots that a step's queries attend to.

    Attributes:
        keys, values: [G, slots, E], contiguous.
        n, first: number of slots, and the first of them.
        positions: tables of keys and of values by distance, [S, E] each, distance 1 last; None where there are none.
        log_mask_HS: logarithms of the span masks by distance.
        age_B: age of each stream's episode, beyond which it does not look back.
        padding: bytes [B, n]: slots that a stream does not see.
        keep: dropout of the weights [G, W] as bytes, whose last n columns belong to the slots, or None; and its scale,
            1 / (1 - p).
        span: S, the length of tables and masks, and of a ring; 1 for the encoder.
        seen_1: on a ring, where step t is in slot t mod ``span``: the number of steps so far, on the device.
        streams: how many consecutive streams each of the keys and values serve.
    """

    keys: Tensor
    values: Tensor
    n: int
    first: int = 0
    positions: tuple[Tensor | None, Tensor | None] = (None, None)
    log_mask_HS: Tensor | None = None
    age_B: Tensor | None = None
    padding: Tensor | None = None
    keep: tuple[Tensor | None, float] = (None, 1.0)
    seen_1: Tensor | None = None
    span: int = 1
    streams: int = 1


class Launcher:
    """Launches a block's kernels, with their tiles and types.

    Args:
        sizes: of the block.
        dtype: of matrices.
        wide: of sums.
        device: of all tensors.
        slots: the most that a step attends to.

    Attributes:
        scale: of scores, 1 / sqrt(E).
        attention: the tile of attention kernels.
        early: whether a kernel starts while the one before it ends.
        BE, P, WIDE: constants of kernels: E rounded up to a power of 2, the precision of products, the type of sums.
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

    def launch(self, kernel, grid: tuple[int, ...], **arguments: Any) -> None:
        """Launch a kernel; with ``early``, while the one before it ends: it waits before it reads anything."""
        options = {"launch_pdl": True} if self.early else {}
        kernel[grid](**arguments, WIDE=self.WIDE, PDL=self.early, **options)

    def product(self, kernel, columns: int, inner: int, sets: int = 1, **arguments: Any) -> None:
        """Launch a product's kernel: a program for each tile.

        Args:
            kernel: one of ``products.py``, ``products_backward.py`` or ``memory.remember``.
            columns, inner: sizes of the product.
            sets: number of products.
            arguments: the kernel's other arguments.
        """
        norm, rich = kernel in WITH_NORM, kernel in RICH
        tile = product_tile(self.sizes.B, columns, inner, self.itemsize, self.gpu, norm=norm, rich=rich)
        grid = (triton.cdiv(self.sizes.B, tile.BM), triton.cdiv(columns, tile.BN), sets)
        self.launch(kernel, grid, B=self.sizes.B, P=self.P, **arguments, **tile._asdict())

    def rows(self, kernel, sets: int = 1, **arguments: Any) -> None:
        """Launch a kernel that goes through whole rows, ``sets`` times; see ``product``."""
        BM, BK = 4, min(256, power_of_2(self.sizes.D))
        grid = (triton.cdiv(self.sizes.B, BM), sets)
        self.launch(kernel, grid, B=self.sizes.B, D=self.sizes.D, BM=BM, BK=BK, num_warps=4, **arguments)

    def attend(self, kernel, slots: AttendedSlots, **arguments: Any) -> None:
        """Launch ``attend`` or ``attend_backward``. ``arguments``: those that are not about the slots."""
        s, tile = self.sizes, self.attention
        keep, keep_scale = slots.keep
        splits = min(tile.splits, floor_power_of_2(triton.cdiv(slots.n, tile.BC)))  # parts in which slots are read
        self.launch(
            kernel,
            (s.G, splits),
            keys=slots.keys,
            values=slots.values,
            key_positions=slots.positions[0],
            value_positions=slots.positions[1],
            log_mask=slots.log_mask_HS,
            age=slots.age_B,
            padding=slots.padding,
            keep=keep,
            seen=slots.seen_1,
            G=s.G,
            n=slots.n,
            slots=slots.keys.shape[-2],
            first=slots.first,
            S=slots.span,
            pad_row=slots.n,
            keep_row=0 if keep is None else keep.shape[-1],
            span=slots.span,
            keep_scale=keep_scale,
            scale=self.scale,
            H=s.H,
            E=s.E,
            PER=slots.streams,
            SPLITS=splits,
            BC=tile.BC,
            BE=self.BE,
            P=self.P,
            STAGES=tile.stages,
            num_warps=tile.warps,
            **arguments,
        )


class Parts(NamedTuple):
    """Room for parts of the attention over many slots, which several programs share; None where one program has all.

    Attributes:
        parts, tops, totals: sums of values, the largest scores, and sums of weights, by part.
        arrived: zeros, for counting.
    """

    parts: Tensor | None = None
    tops: Tensor | None = None
    totals: Tensor | None = None
    arrived: Tensor | None = None

    @classmethod
    def allocate(cls, launcher: Launcher, allocator: Allocator) -> "Parts":
        """The room that a launcher's kernels need."""
        splits, s = launcher.attention.splits, allocator.sizes
        if splits == 1:
            return cls()
        tops, totals = (allocator.buffers.empty(splits, s.G, dtype=allocator.wide) for _ in range(2))
        sums = allocator.buffers.empty(splits, s.G, s.E, dtype=allocator.wide)
        return cls(sums, tops, totals, allocator.buffers.zeros(s.G, dtype=torch.int32))


def keep_of(mask: Dropout | None, *index: int) -> tuple[Tensor | None, float]:
    """A part of a dropout mask as bytes, and its scale."""
    return (None, 1.0) if mask is None else (mask.keep[index].view(torch.uint8), mask.scale)
