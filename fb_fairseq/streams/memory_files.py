"""Files that hold the streams' memory beside a checkpoint, so that a resumed run equals an uninterrupted one.

One file a process and place: ``stream_memory.<epoch>.<iterations>.rank<r>.pt``. (Not named by update: after a gradient
overflow fairseq saves the same update again, one block further.) They hold plain tensors and numbers only. The newest
and the one before it stay: whenever the run is killed, ``checkpoint_last.pt`` finds its own.
"""

import glob
import logging
import os
from typing import Dict, List, Sequence, Tuple

import torch

from fb_fairseq.errors import UserError

logger = logging.getLogger(__name__)

# Value of --save-stream-memory: floating type on disk. "exact" keeps the model's own.
TYPES = {"exact": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


class MemoryFiles:
    """Saves and loads.

    Args:
        task: ``task.restored_from`` is the checkpoint that a run goes on from.
        kind: a key of ``TYPES``, or ``none`` to save nothing.
    """

    def __init__(self, task, kind: str):
        self.task = task
        self.kind = kind

    def save(
        self, folder: str, place: Dict, rank: int, ranks: int, states: Sequence[Tuple[List[int], torch.Tensor]]
    ) -> None:
        """Save memory at a place and remove what no checkpoint needs any more.

        Args:
            place: with ``epoch`` and ``turns``, and whatever else must be the same when it is loaded again.
            states: streams and their memory [K, C, B, D], of this process.
        """
        if self.kind == "none" or not states:
            return
        os.makedirs(folder, exist_ok=True)
        # Copied one by one: views would be saved with all that they are views of.
        copies = [torch.empty_like(memory, device="cpu", dtype=TYPES[self.kind]).copy_(memory) for _, memory in states]
        states = [(torch.tensor(ids), copy) for (ids, _), copy in zip(states, copies)]
        path = self._path(folder, place, rank)
        torch.save({"place": place, "states": states}, path + ".tmp")
        os.replace(path + ".tmp", path)
        saved = glob.glob(os.path.join(glob.escape(folder), "stream_memory.*.rank*.pt"))
        own = sorted((p for p in saved if p.endswith(f".rank{rank}.pt")), key=os.path.getmtime)
        # Files of more processes than there are now are an earlier run's.
        others = [p for p in saved if rank == 0 and int(p.rsplit("rank", 1)[1][:-3]) >= ranks]
        for old in own[:-2] + others:
            os.remove(old)

    def load(self, place: Dict, rank: int, streams: List[int]) -> Dict[int, torch.Tensor]:
        """The memory [K, C, D] of these streams at a place, whichever processes saved it; none, with a warning, if it
        is not there.

        Raises:
            UserError: a file is there but cannot be read.
        """
        folder = os.path.dirname(self.task.restored_from)
        memory: Dict[int, torch.Tensor] = {}
        # This process's own file first: it has all, unless the streams are shared out differently now.
        for path in sorted(
            glob.glob(self._path(glob.escape(folder), place, "*")),
            key=lambda path: not path.endswith(f".rank{rank}.pt"),
        ):
            if all(stream in memory for stream in streams):
                break
            try:
                content = torch.load(path, map_location="cpu", weights_only=True)
            except Exception as error:
                raise UserError(
                    f"{path}: the streams' memory cannot be read; remove the file to go on with an empty memory"
                ) from error
            if content["place"] == place:
                for ids, states in content["states"]:
                    memory.update(zip(ids.tolist(), states.unbind(2)))
        if all(stream in memory for stream in streams):
            return memory
        logger.warning(
            f"no memory of the streams beside {self.task.restored_from} ({self._path('', place, '*')}): they go on with "
            "an empty one. Their next steps are predicted with less context, and the run will differ from an "
            "uninterrupted one."
        )
        return {}

    @staticmethod
    def _path(folder: str, place: Dict, rank) -> str:
        return os.path.join(folder, f"stream_memory.{place['epoch']}.{place['turns']}.rank{rank}.pt")
