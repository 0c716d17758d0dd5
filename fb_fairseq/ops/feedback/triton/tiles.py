"""Sizes of the kernels' tiles, which depend on the GPU.

Those for half precision are the fastest, or nearly, of a dozen that were timed on an NVIDIA H200 for each kernel at
four sizes of models (docs/gpu.md). Numbers of rows, columns and slots need not be multiples of a tile: what lies
outside is masked.
"""

import functools
from typing import NamedTuple

import torch

PROGRAMS = 96  # a product on a step's few rows should have about so many programs
LONG_INNER = 1024  # from here on, larger pieces of the inner dimension are faster
# Shared memory of a program in KB, by compute capability; others have at least 99 (8.6, 8.9, 12.x), or 64 (7.5).
SHARED_MEMORY = {(8, 0): 163, (9, 0): 227, (10, 0): 227, (10, 3): 227}
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
        return SHARED_MEMORY.get(self.capability, 99 if self.pipelines else 64) << 10

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
    """A product's tile, by the names of a kernel's arguments and of Triton's options: BM rows, BN columns, BK of the
    inner dimension at a time.
    """

    BM: int
    BN: int
    BK: int
    num_warps: int
    num_stages: int


class AttentionTile(NamedTuple):
    """How attention is divided: BC slots at a time, all slots in ``splits`` parts (a power of two)."""

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


def fitted(size: int, stages: int, entry_bytes: int, gpu: Gpu) -> tuple[int, int]:
    """Cut pieces that are loaded ahead until two programs share a multiprocessor's memory.

    Args:
        size: of a piece, in slots or entries of the inner dimension; at least 16 are left.
        stages: how many pieces are in memory at once; fewer of them, but two, come before smaller ones.
        entry_bytes: bytes for each slot or entry.

    Returns:
        Size and stages.
    """
    while size * entry_bytes * stages > gpu.shared_memory // 2 and size > 16:
        if stages > 2:
            stages -= 1
        else:
            size //= 2
    return size, stages


def inner_piece(BM: int, inner: int, half: bool, norm: bool, rich: bool) -> tuple[int, int]:
    """How much of the inner dimension a product loads at a time, and how many such pieces are in memory at once.

    The pieces are small where many rows, or rows of many tensors, take the registers. ``half``: entries of two bytes;
    for the other arguments, see ``ProductTile`` and ``product_tile``.
    """
    few = BM <= 32 and not rich
    if not half:
        return (64 if few else 32), 3
    if norm:
        return (128 if few else 64), 3
    if BM > 32:
        return 64, 4
    return (256 if inner >= LONG_INNER else 128), 3


@functools.cache
def product_tile(
    rows: int, columns: int, inner: int, itemsize: int, gpu: Gpu, *, norm: bool = False, rich: bool = False
) -> ProductTile:
    """The tile of a product of few rows.

    Args:
        rows: B.
        columns: N.
        inner: the dimension that is summed.
        itemsize: bytes of an entry of the matrices.
        norm: the prologue has a norm, and goes through the rows more than once, unless it keeps them whole.
        rich: the prologue holds rows of several tensors in registers.
    """
    half, whole = itemsize == 2, power_of_2(inner)
    # Rows: as many as there are registers for, and no more than there are rows.
    BM = 16 if rows <= 128 or rich else 32 if rows <= 256 else 64
    # Columns: as many as leave enough programs.
    BN = 128 if half else 64
    least = 32 if BM == 64 and half else 16
    while BN > least and (programs(rows, columns, BM, BN) < PROGRAMS or BN >= 2 * columns):
        BN //= 2
    if not gpu.pipelines:  # pieces are in registers
        return ProductTile(BM, min(BN, 64), min(32, whole), 8, 1)
    # A norm reads its rows once instead of three times, if they are held whole. Where a multiprocessor gets one program
    # only, it may take most of the memory.
    room = gpu.shared_memory * 3 // 4 if programs(rows, columns, BM, BN) <= gpu.processors else gpu.shared_memory // 2
    if half and norm and (rich or whole == inner) and (BM + BN) * whole * itemsize <= room:
        return ProductTile(BM, BN, whole, 8, 1)
    BK, stages = inner_piece(BM, inner, half, norm, rich)
    BK, stages = fitted(min(BK, whole), stages, (BM + BN) * itemsize, gpu)
    is_large = BM > 32 or BN * itemsize > 128
    return ProductTile(BM, BN, BK, 8 if is_large or half and norm else 4, stages)


def programs(rows: int, columns: int, BM: int, BN: int) -> int:
    """The number of tiles of BM rows and BN columns."""
    return -(-rows // BM) * -(-columns // BN)


def attention_tile(heads: int, slots: int, E: int, itemsize: int, gpu: Gpu) -> AttentionTile:
    """Share out a step's attention.

    Args:
        heads: of all streams, B x H: without splits, the number of programs.
        slots: the most that a step attends to.
        E: width of a head.
        itemsize: bytes of an entry of keys and values.
    """
    # Products of fp32 in full precision need registers instead of tensor cores.
    BC, stages, warps = 16, 2, 8
    if not gpu.pipelines:
        stages = 1
    elif itemsize == 2:
        BC, stages, warps = 32, 3, 2 if E <= 128 else 4
    BC, stages = fitted(BC, stages, 3 * power_of_2(E) * itemsize, gpu)
    splits = floor_power_of_2(min(8, 2 * gpu.processors // max(1, heads), -(-slots // (2 * BC))))
    return AttentionTile(BC, splits, warps, stages)
