"""The owner of the streams' memory in training: one object of one process. Batches carry only its key.

Batches may be made in other processes (``dataloader_num_workers``), ahead of time, or for training and evaluation in
turns. So a batch has a ``StreamHandle``, which says where it belongs, and the model finds the memory when it reads the
batch. A block that does not follow the one before it is an error.
"""

import itertools
import os
from dataclasses import dataclass
from weakref import WeakValueDictionary

import torch

from fb_fairseq.errors import UserError
from fb_fairseq.modules.state import StreamState
from fb_fairseq.transformers.cache import StreamCache

_owners = itertools.count()
_memories: "WeakValueDictionary[tuple[int, int], StreamMemory]" = WeakValueDictionary()


class StreamMemory:
    """The memory of texts that are read in blocks, in training and in evaluation. Copies are the same object.

    Attributes:
        key: process and number.
        caches: by text, and whether the model is training.
    """

    def __init__(self):
        self.key = os.getpid(), next(_owners)
        self.caches: dict[tuple[int, bool], StreamCache] = {}
        self._saved: tuple[StreamState, int] | None = None
        self._last: StreamCache | None = None
        _memories[self.key] = self

    def __reduce__(self):
        return find_memory, (self.key,)

    def resume(self, state: StreamState, position: int) -> None:
        """Begin training with this memory, at a position of the text."""
        self._saved = state, position

    @property
    def training(self) -> StreamCache | None:
        """The memory of the text that was trained on last; None before the first block."""
        return self._last

    def open(self, text: int, start: int, training: bool) -> StreamCache:
        """The memory before a block. At the beginning of a text it is empty."""
        key = text, training
        if start == 0:
            self.caches[key] = StreamCache()
        elif training and self._saved is not None and self._saved[1] == start:
            self.caches[key] = StreamCache()
            self.caches[key].load_state(*self._saved)
        cache = self.caches.get(key)
        if cache is None or cache.position != start:
            found = "there is no memory" if cache is None else f"the memory is that after {cache.position}"
            raise UserError(
                f"streams: a block begins after {start} tokens, but {found}; read the blocks in order, and resume with"
                " StreamMemoryCallback"
            )
        if training:
            self._saved, self._last = None, cache
        return cache


@dataclass(frozen=True)
class StreamHandle:
    """Names the memory of a block.

    Attributes:
        memory: key of the ``StreamMemory``.
        text: number of the text.
        start: tokens of each stream before the block.
        streams: number of streams.
    """

    memory: tuple[int, int]
    text: int
    start: int
    streams: int

    def open(self, rows: int, training: bool) -> StreamCache:
        """The memory before the block."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            if torch.distributed.get_world_size() > 1:
                raise UserError("streams: Trainer trains them in one process; for several, use fairseq's streaming_lm")
        if rows != self.streams:
            raise UserError(
                f"streams: {rows} of {self.streams} streams of a block, which several GPUs share; set"
                " CUDA_VISIBLE_DEVICES to one GPU, or use fairseq's streaming_lm"
            )
        return find_memory(self.memory).open(self.text, self.start, training)


def find_memory(key: tuple[int, int]) -> StreamMemory:
    """The memory of a key."""
    memory = _memories.get(key)
    if memory is None or key[0] != os.getpid():
        raise UserError("streams: their memory is in another process, or gone; keep the StreamCollator that made it")
    return memory
