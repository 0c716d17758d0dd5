"""Buffers are reused when their holder is gone, and only then."""

import gc
import threading

import pytest
import torch

from fb_fairseq.ops import buffers
from fb_fairseq.ops.buffers import Buffers

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_free(monkeypatch):
    gc.collect()  # buffers of earlier tests would be given back during this one
    monkeypatch.setattr(buffers, "POOL", buffers.Pool())
    monkeypatch.setattr(buffers, "CHUNK", 1000)


def test_buffers_do_not_overlap():
    holder = Buffers(CPU)
    made = [
        holder.empty(3, 5, dtype=torch.float32),
        holder.empty(7, dtype=torch.float64),
        holder.empty(400, dtype=torch.float32),
        holder.zeros(2, dtype=torch.float16),
        holder.empty(0, 4, dtype=torch.float32),
    ]
    for i, x in enumerate(made):
        x.fill_(i)
        assert x.data_ptr() % buffers.ALIGNMENT == 0 or x.numel() == 0
    assert [x.unique().tolist() for x in made] == [[0], [1], [2], [3], []]
    assert [x.shape for x in made] == [(3, 5), (7,), (400,), (2,), (0, 4)]


def test_reused_when_the_holder_is_gone():
    one = Buffers(CPU)
    address = one.empty(300, dtype=torch.float32).data_ptr()
    other = Buffers(CPU)
    assert other.empty(300, dtype=torch.float32).data_ptr() != address
    del one
    gc.collect()
    assert other.empty(250, dtype=torch.float32).data_ptr() == address


def test_free_memory_is_bounded():
    for size in (1000, 100, 1000, 10):
        holders = [Buffers(CPU) for _ in range(5)]
        for holder in holders:
            holder.empty(size, dtype=torch.float32)
        del holders, holder
        gc.collect()
        Buffers(CPU).empty(1, dtype=torch.float32)  # collects what is free
        assert 0 < sum(map(len, buffers.POOL.free)) <= 2 * 4000


def test_a_destructor_does_not_wait():
    """The garbage collector may run one while this very thread takes a buffer, and holds the lock."""
    holder = Buffers(CPU)
    address = holder.empty(300, dtype=torch.float32).data_ptr()
    with buffers.POOL.lock:
        destructor = threading.Thread(target=holder.__del__, daemon=True)
        destructor.start()
        destructor.join(timeout=10)
        assert not destructor.is_alive()
    assert Buffers(CPU).empty(300, dtype=torch.float32).data_ptr() == address, "it is collected now"
    holder._chunks, holder._size = [], 0  # it is given back already
