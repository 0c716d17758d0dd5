"""Launches of a block's kernels: sizes of their tiles, types, and pointers into the block's tensors.

The tiles for half precision are the fastest, or nearly, of a dozen that were timed on an NVIDIA H200 for each kernel at
four sizes of models (docs/gpu.md). Numbers of rows, columns and slots need not be multiples of a tile: what lies
outside is masked.
"""

import functools
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fb_fairseq.ops.feedback.block import Room
from fb_fairseq.ops.feedback.triton import memory, products
from fb_fairseq.ops.feedback.types import Sizes
from fb_fairseq.ops.layers import Dropout

PROGRAMS = 96  # a product on a step's few rows should have about so many programs
LONG_INNER = 1024  # from here on, larger pieces of the inner dimension are faster
# Shared memory of a program in bytes, by compute capability: of the smallest card of that generation.
SHARED_MEMORY = {(7, 5): 64 << 10, (8, 0): 163 << 10, (8, 6): 99 << 10, (8, 9): 99 << 10}
LARGE_SHARED_MEMORY = 227 << 10  # from 9.0 on
EARLY_SINCE = (9, 0)  # compute capability from which a kernel may start while the one before it ends
ASYNCHRONOUS_SINCE = (8, 0)  # compute capability from which copies to shared memory run beside the computation


class Gpu(NamedTuple):
    """A GPU, as far as tiles depend on it.

    Attributes:
        capability: compute capability.
        processors: number of multiprocessors.
    """

    capability: tuple[int, int] = (9, 0)
    processors: int = 132

    @property
    def shared_memory(self) -> int:
        """Bytes of shared memory that a program may have."""
        if self.capability >= (9, 0):
            return LARGE_SHARED_MEMORY
        return SHARED_MEMORY.get(self.capability, min(SHARED_MEMORY.values()))

    @property
    def pipelines(self) -> bool:
        """Whether the next pieces are loaded while a program computes. Without that, Triton keeps pieces in registers,
        and only small ones fit.
        """
        return self.capability >= ASYNCHRONOUS_SINCE

    @property
    def starts_early(self) -> bool:
        """Whether a kernel may start while the one before it ends (programmatic dependent launch)."""
        return self.capability >= EARLY_SINCE


@functools.cache
def gpu_of(device: torch.device) -> Gpu:
    """The GPU of a device; for a CPU, where kernels are interpreted, an H200."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return Gpu()
    return Gpu(torch.cuda.get_device_capability(device), torch.cuda.get_device_properties(device).multi_processor_count)


class ProductTile(NamedTuple):
    """A product's tile: BM rows, BN columns, BK of the inner dimension at a time."""

    BM: int
    BN: int
    BK: int
    warps: int
    stages: int

    def options(self) -> dict[str, int]:
        """The tile as keyword arguments of a kernel."""
        return dict(BM=self.BM, BN=self.BN, BK=self.BK, num_warps=self.warps, num_stages=self.stages)


class AttentionTile(NamedTuple):
    """The shares of attention: BC slots at a time, all slots in ``splits`` parts, a power of two."""

    BC: int
    splits: int
    warps: int
    stages: int


def power_of_2(number: int) -> int:
    """The next power of two, at least 16."""
    return max(16, 1 << (number - 1).bit_length())


def floor_power_of_2(number: int) -> int:
    """The largest power of two that is not larger, at least 1."""
    return 1 << (max(1, number).bit_length() - 1)


def product_tile(
    rows: int, columns: int, inner: int, itemsize: int, gpu: Gpu = Gpu(), norm: bool = False, rich: bool = False
) -> ProductTile:
    """The tile of a product of few rows.

    Args:
        columns: N; inner: the dimension that is summed.
        itemsize: bytes of an entry of the matrices.
        norm: the prologue has a norm, and goes through the rows more than once, unless it keeps them whole.
        rich: the prologue holds rows of several tensors in registers.
    """
    half = itemsize == 2
    BM = 16 if rows <= 128 or rich else 32 if rows <= 256 else 64
    row_tiles, BN, least = -(-rows // BM), 128 if half else 64, 32 if BM == 64 and half else 16
    while BN > least and (row_tiles * -(-columns // BN) < PROGRAMS or BN >= 2 * columns):
        BN //= 2
    if not gpu.pipelines:
        return ProductTile(BM, min(BN, 64), min(32, power_of_2(inner)), 8, 1)
    whole, stages = power_of_2(inner), 3
    if half and norm and (rich or whole == inner):
        # Where a multiprocessor gets one program only, it may take most of the memory.
        room = gpu.shared_memory * 3 // 4 if row_tiles * -(-columns // BN) <= gpu.processors else gpu.shared_memory // 2
        if (BM + BN) * whole * itemsize <= room:
            return ProductTile(BM, BN, whole, 8, 1)
    if not half:
        BK = 32 if rich or BM > 32 else 64
    elif norm:
        BK = 64 if rich or BM > 32 else 128
    elif BM > 32:
        BK, stages = 64, 4
    else:
        BK = 256 if inner >= LONG_INNER else 128
    BK = min(BK, whole)
    while (BM + BN) * BK * itemsize * stages > gpu.shared_memory // 2 and BK > 16:
        if stages > 2:
            stages -= 1
        else:
            BK //= 2
    return ProductTile(BM, BN, BK, 8 if half and norm or BM > 32 or BN * itemsize > 128 else 4, stages)


def attention_tile(heads: int, slots: int, E: int, itemsize: int, gpu: Gpu = Gpu()) -> AttentionTile:
    """Share out a step's attention.

    Args:
        heads: of all streams, B x H: without splits, the number of programs.
        slots: the most that a step attends to.
        E: width of a head.
        itemsize: bytes of an entry of keys and values.
    """
    # Products of fp32 in full precision need registers instead of tensor cores.
    BC, stages, warps = (32, 3, 2 if E <= 128 else 4) if itemsize == 2 else (16, 2, 8)
    if not gpu.pipelines:
        BC, stages, warps = 16, 1, 8
    while 3 * BC * power_of_2(E) * itemsize * stages > gpu.shared_memory // 2 and BC > 16:
        if stages > 2:
            stages -= 1
        else:
            BC //= 2
    splits = floor_power_of_2(min(8, 2 * gpu.processors // max(1, heads), -(-slots // (2 * BC))))
    return AttentionTile(BC, splits, warps, stages)


class AttendedSlots(NamedTuple):
    """Slots that a step's queries attend to.

    Attributes:
        keys, values: [G, slots, E], contiguous.
        n, first: number of slots, and the first of them.
        positions: tables of keys and of values by distance, [S, E] each, distance 1 last; None where there are none.
        log_mask_HS: logarithms of the span masks by distance.
        age_B: age of each stream's episode, beyond which it does not look back.
        padding: bytes [B, C]: slots that a stream does not see.
        keep: dropout of the weights [G, W] as bytes, whose last n columns belong to the slots.
        keep_scale: its scale, 1 / (1 - p).
        seen_1, span: on a ring, where step t is in slot t mod ``span``: the number of steps so far, on the device.
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
    keep: Tensor | None = None
    keep_scale: float = 1.0
    seen_1: Tensor | None = None
    span: int = 1
    streams: int = 1


class Launcher:
    """Sizes and types of a block's kernels. ``dtype``: of matrices; wide: of sums. ``slots``: the most that a step
    attends to.
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
        self._tiles: dict[tuple[int, int, bool, bool], ProductTile] = {}

    def tile(self, kernel, columns: int, inner: int) -> ProductTile:
        """The tile of a product; see ``product_tile``."""
        key = columns, inner, kernel in WITH_NORM, kernel in RICH
        if key not in self._tiles:
            self._tiles[key] = product_tile(self.sizes.B, columns, inner, self.itemsize, self.gpu, *key[2:])
        return self._tiles[key]

    def launch(self, kernel, grid: tuple[int, ...], **arguments: Any) -> None:
        """Launch a kernel; with ``early``, while the one before it ends: it waits before it reads anything."""
        options = {"launch_pdl": True} if self.early else {}
        kernel[grid](**arguments, WIDE=self.WIDE, PDL=self.early, **options)

    def product(self, kernel, columns: int, inner: int, sets: int = 1, **arguments: Any) -> None:
        """Launch a product's kernel: a program for each tile.

        Args:
            kernel: one of ``products.py`` or ``memory.remember``.
            columns, inner: sizes of the product.
            sets: number of products.
            arguments: the kernel's other arguments.
        """
        tile = self.tile(kernel, columns, inner)
        grid = (triton.cdiv(self.sizes.B, tile.BM), triton.cdiv(columns, tile.BN), sets)
        self.launch(kernel, grid, B=self.sizes.B, P=self.P, **arguments, **tile.options())

    def rows(self, kernel, sets: int = 1, **arguments: Any) -> None:
        """Launch a kernel that goes through whole rows, ``sets`` times; see ``product``."""
        BM, BK = 4, min(256, power_of_2(self.sizes.D))
        grid = (triton.cdiv(self.sizes.B, BM), sets)
        self.launch(kernel, grid, B=self.sizes.B, D=self.sizes.D, BM=BM, BK=BK, num_warps=4, **arguments)

    def attend(self, kernel, slots: AttendedSlots, **arguments: Any) -> None:
        """Launch a kernel of ``attention.py``. ``arguments``: those that are not about the slots."""
        s, tile, splits = self.sizes, self.attention, self.splits(slots)
        S = next((len(table) for table in slots.positions if table is not None), 0)
        if slots.log_mask_HS is not None:
            S = slots.log_mask_HS.shape[-1]
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
            keep=slots.keep,
            seen=slots.seen_1,
            G=s.G,
            n=slots.n,
            slots=slots.keys.shape[-2],
            first=slots.first,
            S=S,
            pad_row=0 if slots.padding is None else slots.padding.shape[1],
            keep_row=0 if slots.keep is None else slots.keep.shape[-1],
            span=slots.span,
            keep_scale=slots.keep_scale,
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

    def splits(self, slots: AttendedSlots) -> int:
        """In how many parts the slots are read."""
        return min(self.attention.splits, floor_power_of_2(triton.cdiv(slots.n, self.attention.BC)))


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


def keep_of(mask: Dropout | None, *index: int) -> tuple[Tensor | None, float]:
    """A part of a dropout mask as bytes, and its scale."""
    return (None, 1.0) if mask is None else (mask.keep[index].view(torch.uint8), mask.scale)
