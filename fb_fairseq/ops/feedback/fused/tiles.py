"""Sizes of the kernels' tiles: small tables, measured on an NVIDIA H200 (bf16), and limits of shared memory.

Numbers of rows, columns and slots need not be multiples of a tile: what lies outside is masked.
"""

import functools
from typing import Dict, NamedTuple

import torch

PROGRAMS = 96  # a product on a step's few rows should have about so many programs
MULTIPROCESSORS = 132  # where torch does not say
# Shared memory of a program in bytes, by compute capability: of the smallest card of that generation.
SHARED_MEMORY = {(7, 5): 64 << 10, (8, 0): 163 << 10, (8, 6): 99 << 10, (8, 9): 99 << 10}
LARGE_SHARED_MEMORY = 227 << 10  # from 9.0 on


class ProductTile(NamedTuple):
    """A product's tile: BM rows, BN columns, BK of the inner dimension at a time."""

    BM: int
    BN: int
    BK: int
    warps: int
    stages: int

    def options(self) -> Dict[str, int]:
        """As keyword arguments of a kernel."""
        return dict(BM=self.BM, BN=self.BN, BK=self.BK, num_warps=self.warps, num_stages=self.stages)


class AttentionTile(NamedTuple):
    """How attention is shared out: BC slots at a time, slots in ``splits`` parts."""

    BC: int
    splits: int
    warps: int
    stages: int


def power_of_2(number: int) -> int:
    """The next power of two, at least 16."""
    return max(16, 1 << (number - 1).bit_length())


def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return LARGE_SHARED_MEMORY
    return capability_memory(torch.cuda.get_device_capability(device))


def capability_memory(capability: tuple) -> int:
    """The same for a compute capability."""
    return LARGE_SHARED_MEMORY if capability >= (9, 0) else SHARED_MEMORY.get(tuple(capability), 64 << 10)


def product_tile(
    rows: int, columns: int, inner: int, itemsize: int, memory: int = LARGE_SHARED_MEMORY, rich: bool = False
) -> ProductTile:
    """The tile of a product of few rows.

    Args:
        columns: N; inner: the dimension that is summed.
        itemsize: bytes of an entry of the matrices.
        memory: bytes of shared memory.
        rich: the prologue holds rows of several tensors in registers.
    """
    BM = 16 if rows <= 128 or rich else 32 if rows <= 256 else 64
    row_tiles, BN = -(-rows // BM), 64
    while BN > 16 and (row_tiles * -(-columns // BN) < PROGRAMS or BN >= 2 * columns):
        BN //= 2
    BK = 128 if itemsize == 2 else 64
    BK, stages = min(BK // 2 if rich or BM > 32 else BK, power_of_2(inner)), 3
    while (BM + BN) * BK * itemsize * stages > memory // 2 and BK > 16:
        if stages > 2:
            stages -= 1
        else:
            BK //= 2
    return ProductTile(BM, BN, BK, 4 if BM <= 32 and BN * itemsize <= 128 else 8, stages)


@functools.lru_cache(maxsize=None)
def multiprocessors(device: torch.device) -> int:
    """How many multiprocessors a device has."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def attention_tile(heads: int, slots: int, E: int, itemsize: int, processors: int, memory: int) -> AttentionTile:
    """How a step's attention is shared out.

    Args:
        heads: of all streams, B x H: without splits, the number of programs.
        slots: the most that a step attends to.
        E: width of a head.
        processors: of the device.
    """
    # Products of fp32 in full precision need registers instead of tensor cores.
    BC, stages, warps = (32, 3, 4) if itemsize == 2 else (16, 2, 8)
    while 3 * BC * power_of_2(E) * itemsize * stages > memory // 2 and BC > 16:
        if stages > 2:
            stages -= 1
        else:
            BC //= 2
    splits = max(1, min(8, 2 * processors // max(1, heads), -(-slots // (2 * BC))))
    return AttentionTile(BC, splits, warps, stages)
