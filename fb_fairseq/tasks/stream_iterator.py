"""fairseq's epoch iterator for streams: in order, each batch told where it stands, its streams' memory saved."""

from typing import Optional

import torch
from fairseq.data.iterators import EpochBatchIterator

from fb_fairseq.errors import UserError
from fb_fairseq.modules import BlockPlace, StateStore, StreamState
from fb_fairseq.tasks.stream_memory import MemoryFiles
from fb_fairseq.tasks.streams import StreamDataset


def with_places(batches, split: str, epoch: int, store: StateStore):
    """The batches, each with its ``BlockPlace``.

    (No method of the iterator: that would tie iterator and data loader into a cycle and keep old states alive.)
    """
    for batch in batches:
        if batch:
            place = BlockPlace(store, split, epoch, **batch["place"])
            batch = {**batch, "net_input": {**batch["net_input"], "stream": place}}
        yield batch


class StreamBatchIterator(EpochBatchIterator):
    """Serves the blocks of a split in order and carries its streams' states.

    Each batch gets a ``BlockPlace`` as ``net_input["stream"]``: the model reads the state there and writes it
    back. States live as long as one pass over the split. At a checkpoint in mid-epoch they are saved by
    ``save_memory``, which every process calls; at an epoch's end there is nothing to save.
    """

    def __init__(self, dataset: StreamDataset, memory_files: Optional[MemoryFiles] = None, **kwargs):
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
        self.store = StateStore()
        itr = super()._get_iterator_for_epoch(epoch, shuffle, fix_batches_to_gpus, offset)
        if itr is not None:
            itr._itr = with_places(itr._itr, self.dataset.split, epoch, self.store)
        return itr

    @property
    def _groups_here(self) -> int:
        return self.layout.groups // self.num_shards

    @property
    def offset(self) -> int:
        """How many steps of each stream have been served in this epoch."""
        return self.iterations_in_epoch // self._groups_here * self.layout.block

    def _place(self, epoch: int, offset: int):
        """What tells this point of this run from others."""
        return {
            "epoch": epoch,
            "offset": offset,
            "streams": self.layout.streams,
            "tokens": self.layout.tokens,
            "fingerprint": self.dataset.corpus.fingerprint(),
        }

    def save_memory(self, folder: str) -> None:
        """Save the states of this process's streams beside the checkpoint that is about to be made."""
        if self.end_of_epoch():
            return
        states = self.store.at(self.offset)
        streams = [stream for group in states for stream in self.layout.group(group)]
        place = self._place(self.epoch, self.offset)
        self.memory_files.save(folder, place, self.shard_id, self.num_shards, streams, list(states.values()))

    def state_dict(self):
        state = super().state_dict()
        if state["iterations_in_epoch"] > 0:
            state["streams"] = self._place(self.epoch, self.offset)
        return state

    def load_state_dict(self, state_dict):
        """Go on where a checkpoint was made.

        Batch size, processes and ``--update-freq`` may share the streams out differently as long as their product
        is the same.

        Raises:
            UserError: the checkpoint's streams cannot be continued by these.
        """
        saved = state_dict.get("streams")
        if state_dict.get("iterations_in_epoch", 0) == 0:
            super().load_state_dict(state_dict)
            return
        self._check(saved)
        iterations = saved["offset"] // self.layout.block * self._groups_here
        super().load_state_dict({**state_dict, "iterations_in_epoch": iterations})
        mine = [group for group in range(self.shard_id, self.layout.groups, self.num_shards)]
        streams = [stream for group in mine for stream in self.layout.group(group)]
        memory = self.memory_files.load(saved, self.shard_id, streams)
        for group in mine:
            if memory and self.layout.group(group):
                rows = [memory[stream] for stream in self.layout.group(group)]
                self.store.write(group, saved["offset"], StreamState(torch.stack(rows, 2)))

    def _check(self, saved):
        anew = "or start the epoch anew with --reset-dataloader"
        if saved is None:
            raise UserError(f"--task: the checkpoint was made in mid-epoch by another task; give that one, {anew}")
        if saved["streams"] != self.layout.streams:
            raise UserError(
                f"--batch-size x processes x --update-freq is {self.layout.streams} streams; the checkpoint was made "
                f"in mid-epoch with {saved['streams']}; give the same product, {anew}"
            )
        if (saved["tokens"], saved["fingerprint"]) != (self.layout.tokens, self.dataset.corpus.fingerprint()):
            raise UserError(
                f"the {self.dataset.split} split ({self.layout.tokens} tokens) is not the one that the checkpoint was "
                f"made with in mid-epoch ({saved['tokens']} tokens); give the same data, {anew}"
            )
        if saved["offset"] % self.layout.block:
            raise UserError(
                f"--tokens-per-sample {self.layout.block} does not divide the {saved['offset']} steps of the epoch "
                f"that the checkpoint has done; give the same as before, {anew}"
            )
