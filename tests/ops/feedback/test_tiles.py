"""The Triton loop's tiles: enough programs, within every GPU's shared memory."""

import itertools

import pytest

from fb_fairseq.ops.feedback.triton.launches import (
    SHARED_MEMORY,
    AttentionTile,
    Gpu,
    ProductTile,
    attention_tile,
    power_of_2,
    product_tile,
)

CAPABILITIES = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0)]


def test_tables():
    """What was fastest where it was measured, and what smaller GPUs get."""
    assert product_tile(64, 384, 384, 2) == ProductTile(BM=16, BN=16, BK=128, warps=4, stages=3)
    assert product_tile(64, 384, 1536, 2) == ProductTile(BM=16, BN=16, BK=256, warps=4, stages=3)
    assert product_tile(512, 384, 1536, 2) == ProductTile(BM=64, BN=32, BK=64, warps=8, stages=4)
    assert product_tile(64, 1536, 384, 2, norm=True) == ProductTile(BM=16, BN=64, BK=128, warps=8, stages=3)
    whole = dict(norm=True, rich=True)
    assert product_tile(64, 768, 384, 2, **whole) == ProductTile(BM=16, BN=32, BK=512, warps=8, stages=1)
    assert product_tile(32, 4096, 1024, 2, **whole) == ProductTile(BM=16, BN=64, BK=1024, warps=8, stages=1)
    assert product_tile(512, 1536, 384, 2, **whole) == ProductTile(BM=16, BN=128, BK=64, warps=8, stages=3)
    assert product_tile(3, 40, 56, 4).BK == 64 and product_tile(3, 10, 56, 4).BN == 16
    assert product_tile(64, 1536, 384, 2, Gpu((7, 5), 40)) == ProductTile(BM=16, BN=64, BK=32, warps=8, stages=1)
    assert attention_tile(256, 512, 96, 2) == AttentionTile(BC=32, splits=1, warps=2, stages=3)
    assert attention_tile(4, 512, 96, 2) == AttentionTile(BC=32, splits=8, warps=2, stages=3)
    assert attention_tile(4, 100, 96, 2).splits == 2, "a part has two tiles of slots"
    assert attention_tile(256, 512, 96, 2, Gpu((7, 5), 40)) == AttentionTile(BC=16, splits=1, warps=8, stages=1)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_shared_memory(capability):
    """Half of it, so that two programs fit; of whole rows three quarters, where there are few programs. Where one piece
    takes more, there is one piece at a time."""
    gpu = Gpu(capability)
    kinds = [(False, False), (True, False), (True, True)]
    for rows, columns, inner, itemsize, kind in itertools.product((1, 64, 300), (16, 4096), (16, 4096), (2, 4), kinds):
        tile = product_tile(rows, columns, inner, itemsize, gpu, *kind)
        few = -(-rows // tile.BM) * -(-columns // tile.BN) <= gpu.processors and tile.BK >= inner
        share = 3 / 4 if few else 1 / 2
        assert (tile.BM + tile.BN) * tile.BK * itemsize * tile.stages <= gpu.shared_memory * share
    for E, itemsize in ((16, 2), (128, 2), (128, 4), (256, 2)):
        tile = attention_tile(8, 512, E, itemsize, gpu)
        assert 3 * tile.BC * power_of_2(E) * itemsize * tile.stages <= gpu.shared_memory // 2 or tile.BC == 16


def test_enough_programs():
    for rows, columns in itertools.product((1, 64, 128, 512), (384, 1024, 4096)):
        tile = product_tile(rows, columns, columns, 2)
        programs = -(-rows // tile.BM) * -(-columns // tile.BN)
        assert programs >= 96 or tile.BN == (32 if tile.BM == 64 else 16)


def test_unknown_gpus():
    """Old ones are taken for the smallest, new ones for the largest that is known."""
    assert Gpu((7, 0)).shared_memory == SHARED_MEMORY[7, 5] and not Gpu((7, 0)).pipelines
    assert Gpu((12, 0)).shared_memory == Gpu((9, 0)).shared_memory
