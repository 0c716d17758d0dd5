"""Train on endless streams with transformers' ``Trainer``: memory is carried from block to block.

::

    blocks = StreamBlocks(tokens, streams=32, steps=64)
    collator = StreamCollator()
    Trainer(
        model=model,
        args=TrainingArguments(..., per_device_train_batch_size=1, remove_unused_columns=False),
        train_dataset=blocks,
        data_collator=collator,
        callbacks=[StreamMemoryCallback(collator)],
    ).train()

A batch of the ``Trainer`` is one block of all streams. One process only: for several, use fairseq's ``streaming_lm``.

The memory is in one object of that process. Batches may be made in others (``dataloader_num_workers``), ahead of time,
or for training and evaluation in turns, so they carry only its key (``StreamKey``), and the model finds it when it
reads the batch. A block that does not follow the one before it is an error.
"""

import itertools
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info
from transformers import TrainerCallback

from fb_fairseq.errors import UserError
from fb_fairseq.modules.interface import StreamState
from fb_fairseq.streams.layout import BlockLengths, StreamLayout
from fb_fairseq.streams.state import StateHandle, StateStore
from fb_fairseq.transformers.configuration import EOS

MEMORY_FILE = "stream_memory.safetensors"

_memories: "WeakValueDictionary[str, StreamMemory]" = WeakValueDictionary()
_texts = itertools.count()  # numbers of the texts


class StreamMemory:
    """The memory of texts that are read in blocks, in training and in evaluation. Copies are the same object, also
    those that come back from another process.

    Attributes:
        store: the states; its cohorts are a text's number, and whether the model is training.
        trained: the text that was trained on last, as a cohort; None before the first block.
        resumed: a state to begin training with, and its position in the text; None: there is none.
    """

    def __init__(self, name: str | None = None):
        self.name = name or uuid.uuid4().hex
        self.store = StateStore()
        self.trained: tuple[int, bool] | None = None
        self.resumed: tuple[StreamState, int] | None = None
        _memories[self.name] = self

    def __reduce__(self):
        return memory_of, (self.name,)

    def open(self, text: int, start: int, training: bool) -> StateHandle:
        """The handle of the memory before a block. At the beginning of a text it is empty.

        Args:
            text: its number.
            start: tokens of each stream before the block.
            training: whether the model is training; an evaluation has a memory of its own.
        """
        key = text, training
        if training and self.resumed is not None and self.resumed[1] == start:
            self.store.write(key, start, self.resumed[0])
        if start and self.store.read(key, start) is None:
            last = self.store.latest(key)
            found = "there is no memory" if last is None else f"the memory is that after {last}"
            raise UserError(
                f"streams: a block begins after {start} tokens, but {found}; read the blocks in order, resume with"
                " StreamMemoryCallback, and keep the StreamCollator"
            )
        if training:
            self.resumed = None
            self.trained = key
        self.store.drop_before((key,), start or float("inf"))  # at the beginning: all that an earlier epoch has left
        return StateHandle(self.store, (key,), start)


def memory_of(name: str) -> StreamMemory:
    """The memory of this name. In a process that only makes batches, one that stays empty."""
    return _memories.get(name) or StreamMemory(name)


@dataclass(frozen=True)
class StreamKey:
    """Names the memory of a block, which the model opens when it reads the block.

    Attributes:
        memory: that of the collator.
        text: number of the text.
        start: tokens of each stream before the block.
        streams: number of streams.
        targets: number of targets of a block of the text, on average.
    """

    memory: StreamMemory
    text: int
    start: int
    streams: int
    targets: float

    def open(self, rows: int, training: bool) -> StateHandle:
        """The memory before the block. ``rows``: number of streams that the model was given."""
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if rows != self.streams or distributed and torch.distributed.get_world_size() > 1:
            raise UserError(
                f"streams: {rows} of {self.streams} streams of a block, in one of several processes or GPUs; set"
                " CUDA_VISIBLE_DEVICES to one GPU, or use fairseq's streaming_lm"
            )
        return self.memory.open(self.text, self.start, training)


class StreamBlocks(IterableDataset):
    """The blocks of a text in order, which is cut into streams as for fairseq, but all of the same length: what is left
    at the end of the text is not read.

    Args:
        tokens: the text [N], without ``</s>`` before it.
        streams: number of streams, B.
        steps: length of a block, T.
    """

    def __init__(self, tokens: Tensor, streams: int, steps: int):
        whole = len(tokens) - len(tokens) % streams  # the rest would make some streams longer than others
        if not whole:
            raise UserError(f"streams={streams}: the text has only {len(tokens)} tokens; give fewer streams")
        self.layout = StreamLayout(whole, streams, 1, BlockLengths(steps))
        self.number = next(_texts)
        self._tokens = torch.cat([tokens.new_tensor([EOS]), tokens[:whole]])  # the input of target p is in place p

    def __len__(self) -> int:
        return len(self.layout.turns)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()  # of several, each makes every n-th block; DataLoader takes them in turns
        first, number = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for index in range(first, len(self), number):
            block = self.layout.batch(index)
            places = [self.layout.targets(stream, block.offset, block.steps) for stream in block.streams]
            yield {
                "input_ids": torch.stack([self._tokens[first:last] for first, last in places]),
                "labels": torch.stack([self._tokens[first + 1 : last + 1] for first, last in places]),
                "start": block.offset,
                "text": self.number,
                "targets": self.layout.tokens / len(self),
            }


class StreamCollator:
    """Makes a batch of each block, and owns the streams' memory. It may be used for training and evaluation."""

    def __init__(self):
        self.memory = StreamMemory()

    def __call__(self, blocks: list[dict]) -> dict:
        """The batch of one block."""
        if "start" not in blocks[0]:
            raise UserError("remove_unused_columns=True: would remove the position of blocks; give False")
        if len(blocks) != 1:
            raise UserError(
                f"{len(blocks)} blocks in a batch, and each holds all streams; give per_device_train_batch_size=1 and "
                "per_device_eval_batch_size=1"
            )
        (block,) = blocks
        start = block["start"]
        streams, steps = block["input_ids"].shape
        return {
            "input_ids": block["input_ids"],
            "position_ids": torch.arange(start, start + steps)[None],  # for the model to compare with the memory
            "labels": block["input_ids"],  # (metrics shift them)
            "shift_labels": block["labels"],
            "past_key_values": StreamKey(self.memory, block["text"], start, streams, block["targets"]),
        }


class StreamMemoryCallback(TrainerCallback):
    """Saves the memory with each checkpoint, and restores it when training resumes.

    Args:
        collator: that of the ``Trainer``.
        resume_from: folder of the checkpoint from which training resumes; None: that in the output folder.
    """

    def __init__(self, collator: StreamCollator, resume_from: str | None = None):
        self.collator = collator
        self.resume_from = resume_from

    def on_save(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Save the memory in the checkpoint's folder."""
        memory = self.collator.memory
        position = memory.store.latest(memory.trained)
        if position is None:
            return
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        if not os.path.isdir(folder):
            raise UserError(f"{folder}: no such checkpoint; streams cannot be trained in a hyperparameter search")
        save_file(
            {
                "memory": memory.store.read(memory.trained, position).memory_KCBD.contiguous(),
                "position": torch.tensor(position),
                "model": fingerprint(model),
            },
            os.path.join(folder, MEMORY_FILE),
        )

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Restore the memory, if training resumes."""
        if not state.global_step or args.ignore_data_skip:  # (then the text begins anew)
            return
        folder = self.resume_from or os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        path = os.path.join(folder, MEMORY_FILE)
        saved = load_file(path) if os.path.exists(path) else {"model": torch.zeros(0)}
        if not saved["model"].equal(fingerprint(model)):
            raise UserError(
                f"{folder}: no {MEMORY_FILE} of this model at step {state.global_step}; give"
                " StreamMemoryCallback(collator, resume_from=the folder of the checkpoint)"
            )
        self.collator.memory.resumed = StreamState(saved["memory"].to(args.device)), int(saved["position"])


@torch.no_grad()
def fingerprint(model: torch.nn.Module) -> Tensor:
    """Sums of the bits of each parameter, to tell models apart."""
    found = [p.detach().reshape(-1).view(torch.uint8).sum(dtype=torch.int64) for p in model.parameters()]
    return torch.stack([x.cpu() for x in found])
