"""fairseq's epoch iterator for streams: in order, each batch told where it stands, its streams' memory saved."""

from typing import List, Optional

import torch
from fairseq.data.iterators import EpochBatchIterator

from fb_fairseq.errors import UserError
from fb_fairseq.modules import StreamState
from fb_fairseq.streams.layout import StreamDataset
from fb_fairseq.streams.memory_files import MemoryFiles
from fb_fairseq.streams.state import BlockPlace, StateStore


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
    def _cohorts_here(self) -> List[int]:
        groups = range(self.shard_id, self.layout.groups, self.num_shards)
        return [part * self.layout.groups + group for part in range(self.layout.parts) for group in groups]

    def _place(self):
        """What tells this point of this run from others."""
        turns = self.iterations_in_epoch // self._groups_here
        return {
            "epoch": self.epoch,
            "turns": turns,
            "offsets": self.layout.offsets(turns),
            "streams": self.layout.streams,
            "tokens": self.layout.tokens,
            "fingerprint": self.dataset.corpus.fingerprint(),
        }

    def save_memory(self, folder: str) -> None:
        """Save the states of this process's streams beside the checkpoint that is about to be made."""
        if self.end_of_epoch():
            return
        place = self._place()
        offsets = {cohort: place["offsets"][cohort // self.layout.groups] for cohort in self._cohorts_here}
        states = self.store.at(offsets)
        states = [(self.layout.cohort(cohort), state.memory_KCBD) for cohort, state in states.items()]
        self.memory_files.save(folder, place, self.shard_id, self.num_shards, states)

    def state_dict(self):
        state = super().state_dict()
        if state["iterations_in_epoch"] > 0:
            state["streams"] = self._place()
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
        turns = self.layout.turns_until(saved["offsets"])
        super().load_state_dict({**state_dict, "iterations_in_epoch": turns * self._groups_here})
        cohorts = {cohort: self.layout.cohort(cohort) for cohort in self._cohorts_here}
        begun = [c for c, streams in cohorts.items() if streams and saved["offsets"][c // self.layout.groups]]
        memory = self.memory_files.load(saved, self.shard_id, [s for c in begun for s in cohorts[c]])
        for cohort in begun if memory else []:
            state = StreamState(torch.stack([memory[stream] for stream in cohorts[cohort]], 2))
            self.store.write(cohort, saved["offsets"][cohort // self.layout.groups], state)

    def _check(self, saved):
        anew = "or start the epoch anew with --reset-dataloader"
        if saved is None:
            raise UserError(f"--task: the checkpoint was made in mid-epoch by another task; give that one, {anew}")
        if saved["streams"] != self.layout.streams:
            raise UserError(
                f"--batch-size x processes x --update-freq{self.layout.warmup_factor} is {self.layout.streams} "
                f"streams; the checkpoint was made in mid-epoch with {saved['streams']}; give the same product, {anew}"
            )
        if (saved["tokens"], saved["fingerprint"]) != (self.layout.tokens, self.dataset.corpus.fingerprint()):
            raise UserError(
                f"the {self.dataset.split} split ({self.layout.tokens} tokens) is not the one that the checkpoint was "
                f"made with in mid-epoch ({saved['tokens']} tokens); give the same data, {anew}"
            )
        if self.layout.turns_until(saved["offsets"]) is None:
            raise UserError(
                f"--tokens-per-sample {self.layout.lengths.full} (or the BPTT warm-up) makes no blocks that continue "
                f"those of the epoch that the checkpoint has done (to step {max(saved['offsets'])}); give the same as "
                f"before, {anew}"
            )
