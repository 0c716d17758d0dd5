"""fairseq's epoch iterator for streams: serves blocks in order, and saves and restores the memory of streams."""

from collections.abc import Iterable, Iterator

import torch
from fairseq.data.iterators import CountingIterator, EpochBatchIterator

from fb_fairseq.errors import UserError
from fb_fairseq.modules import StreamState
from fb_fairseq.streams.checkpoints import MemoryFiles
from fb_fairseq.streams.fairseq.dataset import StreamDataset
from fb_fairseq.streams.position import START_ANEW, StreamPosition
from fb_fairseq.streams.state import StateHandle, StateStore


def attach_handles(batches: Iterable[dict], store: StateStore) -> Iterator[dict]:
    """Give each batch a ``StateHandle`` as ``net_input["stream"]``.

    When a batch is requested, the block before it is finished: its old states are dropped.

    This is not a method of ``StreamBatchIterator``, because the generator would then refer to the iterator that refers
    to it, and the states of past epochs would stay in memory until Python's garbage collector finds the cycle.
    """
    for batch in batches:
        if batch:
            handle = StateHandle(store, **batch["block"])
            store.drop_before(handle.cohorts, handle.offset)
            batch = {**batch, "net_input": {**batch["net_input"], "stream": handle}}
        yield batch


class StreamBatchIterator(EpochBatchIterator):
    """Serves the blocks of a split in order and carries the memory of its streams.

    Each batch comes with a ``StateHandle`` as ``net_input["stream"]``, with which the model reads the streams' state
    and writes it back. States live for one pass over the split (terms: see ``StreamLayout``). A checkpoint in mid-epoch
    needs them too, see ``save_memory``; at the end of an epoch there is nothing to save.

    Args:
        dataset: an arranged ``StreamDataset``.
        memory_files: where memory is saved to and loaded from; needed only for training.
        **kwargs: of fairseq's ``EpochBatchIterator``.
    """

    run: str | None = None  # see ``fb_fairseq.streams.hooks``

    def __init__(self, dataset: StreamDataset, memory_files: MemoryFiles | None = None, **kwargs):
        super().__init__(
            dataset=dataset,
            collate_fn=dataset.collater,
            batch_sampler=dataset.layout.batches(),
            disable_shuffling=True,
            **kwargs,
        )
        self.layout = dataset.layout
        self.memory_files = memory_files
        self.store = StateStore()

    def _get_iterator_for_epoch(self, epoch, shuffle, fix_batches_to_gpus=False, offset=0):
        """Begin a pass, at batch ``offset`` of this process.

        Overrides a private method of fairseq, because it is the one place where both ``next_epoch_itr`` and
        ``load_state_dict`` create the iterator of a pass. Handles must be attached outside of what fairseq returns:
        inside, its ``BufferedIterator`` requests batches ahead of time, when earlier blocks are not finished. The new
        ``CountingIterator`` counts like the one that it wraps.
        """
        self.store = StateStore()
        itr = super()._get_iterator_for_epoch(epoch, shuffle, fix_batches_to_gpus, offset)
        if itr is None:  # fairseq's sign that the epoch has no batch left
            return None
        return CountingIterator(attach_handles(itr, self.store), start=itr.n, total=len(itr))

    @property
    def _groups_per_process(self) -> int:
        return self.layout.groups // self.num_shards

    @property
    def _cohorts(self) -> list[int]:
        """The cohorts that this process serves."""
        return self.layout.cohorts_of_process(self.shard_id, self.num_shards)

    def _position(self) -> StreamPosition:
        turns = self.iterations_in_epoch // self._groups_per_process  # fairseq counts the batches of this process
        return StreamPosition(
            epoch=self.epoch,
            turns=turns,
            offsets=self.layout.offsets(turns),
            streams=self.layout.streams,
            tokens=self.layout.tokens,
            fingerprint=self.dataset.corpus.fingerprint(),
        )

    def save_memory(self, folder: str) -> None:
        """Save the memory of this process's streams, unless the epoch is at its end."""
        if self.end_of_epoch():
            return
        position = self._position()
        states = {c: self.store.read(c, position.offsets[self.layout.part_of(c)]) for c in self._cohorts}
        memory = [(self.layout.cohort(c), state.memory_KCBD) for c, state in states.items() if state is not None]
        self.memory_files.save(
            folder,
            position,
            run=self.run,
            rank=self.shard_id,
            processes=self.num_shards,
            states=memory,
        )

    def state_dict(self):
        """fairseq's state, and in mid-epoch the position of the streams."""
        state = super().state_dict()
        if state["iterations_in_epoch"] > 0:
            state["streams"] = self._position()._asdict()
            state["run"] = self.run
        return state

    def load_state_dict(self, state_dict):
        """Resume where a checkpoint was saved, with the memory saved there."""
        if state_dict.get("iterations_in_epoch", 0) == 0:
            super().load_state_dict(state_dict)
            return
        if state_dict.get("streams") is None:
            raise UserError(f"--task: the checkpoint was saved mid-epoch by another task; use that one, {START_ANEW}")
        position = StreamPosition(**state_dict["streams"])
        position.check(self.layout, self.dataset.split, self.dataset.corpus.fingerprint())
        self.run = state_dict.get("run")
        turns = self.layout.turns_until(position.offsets)
        super().load_state_dict({**state_dict, "iterations_in_epoch": turns * self._groups_per_process})
        self._load_memory(position)

    def _load_memory(self, position: StreamPosition) -> None:
        """Put the memory saved at a position into the store, for the streams that this process serves now."""
        offsets = {cohort: position.offsets[self.layout.part_of(cohort)] for cohort in self._cohorts}
        streams = {cohort: self.layout.cohort(cohort) for cohort in self._cohorts}
        started = [cohort for cohort in self._cohorts if streams[cohort] and offsets[cohort]]
        needed = [stream for cohort in started for stream in streams[cohort]]
        memory = self.memory_files.load(position, self.run, self.shard_id, needed)
        if not memory:
            return
        for cohort in started:
            state = StreamState(torch.stack([memory[stream] for stream in streams[cohort]], 2))
            self.store.write(cohort, offsets[cohort], state)
