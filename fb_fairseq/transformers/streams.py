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
"""

import os
from typing import Dict, Iterator, List, Optional

import torch
from torch import Tensor
from torch.utils.data import IterableDataset
from transformers import TrainerCallback

from fb_fairseq.errors import UserError
from fb_fairseq.modules.state import StreamState
from fb_fairseq.streams.bptt_warmup import BlockLengths
from fb_fairseq.streams.layout import StreamLayout
from fb_fairseq.transformers.cache import StreamCache
from fb_fairseq.transformers.configuration import EOS

MEMORY_FILE = "stream_memory.safetensors"


class StreamBlocks(IterableDataset):
    """The blocks of a text in order, which is cut into streams as for fairseq, but all of the same length: what is left
    at the end of the text is not read.

    Args:
        tokens: the text [N], without ``</s>`` before it.
        streams: number of streams, B.
        steps: length of a block, T.

    Raises:
        UserError: the text is too short.
    """

    def __init__(self, tokens: Tensor, streams: int, steps: int):
        whole = len(tokens) - len(tokens) % streams  # the rest would make some streams longer than others
        if not whole:
            raise UserError(f"streams={streams}: the text has only {len(tokens)} tokens; give fewer streams")
        self.layout = StreamLayout(whole, streams, 1, BlockLengths(steps))
        self._tokens = torch.cat([tokens.new_tensor([EOS]), tokens[:whole]])  # the input of target p is in place p

    def __len__(self) -> int:
        return len(self.layout.turns)

    def __iter__(self) -> Iterator[Dict[str, Tensor]]:
        for index in range(len(self)):
            block = self.layout.batch(index)
            places = [self.layout.targets(stream, block.offset, block.steps) for stream in block.streams]
            yield {
                "input_ids": torch.stack([self._tokens[first:last] for first, last in places]),
                "labels": torch.stack([self._tokens[first + 1 : last + 1] for first, last in places]),
                "start": block.offset,
            }


class StreamCollator:
    """Makes a batch of each block, with the streams' memory, which the model updates.

    Attributes:
        cache: the memory. It is emptied at the beginning of the text.
    """

    def __init__(self):
        self.cache = StreamCache()
        self._saved: Optional[tuple] = None

    def resume(self, state: StreamState, position: int) -> None:
        """Start with this memory at a position of the text."""
        self._saved = state, position

    def __call__(self, blocks: List[dict]) -> dict:
        """The batch of one block. Its labels are those of the next tokens.

        Raises:
            UserError: there are several blocks, or ``Trainer`` has removed their position.
        """
        if "start" not in blocks[0]:
            raise UserError("remove_unused_columns=True: would remove the position of blocks; give False")
        if len(blocks) != 1:
            raise UserError(f"per_device_train_batch_size={len(blocks)}: a block holds all streams; give 1")
        (block,) = blocks
        if block["start"] == 0:
            self.cache = StreamCache()  # (that of the last epoch may still be in use)
        if self._saved is not None and block["start"] == self._saved[1]:
            self.cache.load_state(*self._saved)
            self._saved = None
        start, steps = block["start"], block["input_ids"].shape[1]
        return {
            "input_ids": block["input_ids"],
            "position_ids": torch.arange(start, start + steps)[None],  # for the model to compare with the memory
            "labels": block["labels"],
            "shift_labels": block["labels"],
            "past_key_values": self.cache,
        }


class StreamMemoryCallback(TrainerCallback):
    """Saves the memory with each checkpoint, and restores it when training resumes.

    Args:
        collator: that of the ``Trainer``.
    """

    def __init__(self, collator: StreamCollator):
        self.collator = collator

    def on_save(self, args, state, control, **kwargs):
        """Save the memory in the checkpoint's folder."""
        from safetensors.torch import save_file

        cache = self.collator.cache
        if cache.state is not None:
            tensors = {"memory": cache.state.memory_KCBD.contiguous(), "position": torch.tensor(cache.position)}
            save_file(tensors, os.path.join(args.output_dir, f"checkpoint-{state.global_step}", MEMORY_FILE))

    def on_train_begin(self, args, state, control, **kwargs):
        """Restore the memory, if training resumes from a checkpoint that has it."""
        from safetensors.torch import load_file

        path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}", MEMORY_FILE)
        if state.global_step and os.path.exists(path):
            saved = load_file(path)
            self.collator.resume(StreamState(saved["memory"].to(args.device)), int(saved["position"]))
