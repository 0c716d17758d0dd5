"""Files that hold the memory of streams beside a checkpoint, so that a resumed run equals an uninterrupted one.

Each process writes one file per checkpoint: ``stream_memory.<epoch>.<turns>.rank<rank>.pt``. (The name does not contain
the number of updates: after a gradient overflow fairseq may save the same update again, one block later.) The files
hold only plain tensors and numbers. The newest two are kept, so that whenever a run is killed, the files of
``checkpoint_last.pt`` exist.
"""

import glob
import logging
import os
from typing import Dict, List, Sequence, Tuple

import torch

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write
from fb_fairseq.streams.position import StreamPosition
from fb_fairseq.streams.resume import ResumeInfo

logger = logging.getLogger(__name__)

# Value of --save-stream-memory: floating-point type in the file ("exact": that of the model).
STORAGE_TYPES = {"exact": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
FILES_KEPT = 2  # the newest, and the one before: checkpoint_last.pt still belongs to it until fairseq has replaced it


class MemoryFiles:
    """Saves and loads the memory of streams.

    Args:
        resume: tells which checkpoint the run resumes from.
        storage: ``--save-stream-memory``: a key of ``STORAGE_TYPES``, or ``none`` to save nothing.
    """

    def __init__(self, resume: ResumeInfo, storage: str):
        self.resume = resume
        self.storage = storage

    def save(
        self,
        folder: str,
        position: StreamPosition,
        rank: int,
        processes: int,
        states: Sequence[Tuple[List[int], torch.Tensor]],
    ) -> None:
        """Save the memory of a process's streams, and remove the files that no checkpoint needs any more.

        Args:
            folder: where the checkpoint is going to be saved.
            states: pairs of B streams and their memory [K, C, B, D].
        """
        if self.storage == "none" or not states:
            return
        os.makedirs(folder, exist_ok=True)
        dtype = STORAGE_TYPES[self.storage]
        # Copied one by one: torch.save would write all of the tensor that a view belongs to.
        copies = [torch.empty_like(memory, device="cpu", dtype=dtype).copy_(memory) for _, memory in states]
        content = [(torch.tensor(streams), copy) for (streams, _), copy in zip(states, copies)]
        with atomic_write(_path(folder, position, rank)) as temporary:
            torch.save({"place": position.as_dict(), "states": content}, temporary)
        self._remove_old_files(folder, rank, processes)

    @staticmethod
    def _remove_old_files(folder: str, rank: int, processes: int) -> None:
        files = glob.glob(os.path.join(glob.escape(folder), "stream_memory.*.rank*.pt"))
        own = sorted((path for path in files if _rank(path) == rank), key=os.path.getmtime)
        # An earlier run with more processes left files that no process of this one owns.
        orphans = [path for path in files if _rank(path) >= processes] if rank == 0 else []
        for path in own[:-FILES_KEPT] + orphans:
            os.remove(path)

    def load(self, position: StreamPosition, rank: int, streams: List[int]) -> Dict[int, torch.Tensor]:
        """Load the memory of streams at a position, whichever processes saved it.

        Returns:
            The memory [K, C, D] by stream, of at least these streams. Empty, with a warning, if any is not found.

        Raises:
            UserError: a file cannot be read.
        """
        memory: Dict[int, torch.Tensor] = {}
        paths = glob.glob(_path(glob.escape(self.resume.folder), position, "*"))
        # Our own file first: it suffices, unless the streams are divided differently among processes now.
        for path in sorted(paths, key=lambda path: _rank(path) != rank):
            if all(stream in memory for stream in streams):
                break
            try:
                content = torch.load(path, map_location="cpu", weights_only=True)
            except Exception as error:
                raise UserError(
                    f"{path}: the streams' memory cannot be read; remove the file to resume with an empty memory"
                ) from error
            if content["place"] == position.as_dict():
                for ids, states in content["states"]:
                    memory.update(zip(ids.tolist(), states.unbind(2)))
        if all(stream in memory for stream in streams):
            return memory
        logger.warning(
            f"no memory of the streams was found beside {self.resume.restored_from} ({_path('', position, '*')}): they "
            "resume with an empty memory. Their next steps are predicted with less context, and the run will differ "
            "from an uninterrupted one."
        )
        return {}


def _path(folder: str, position: StreamPosition, rank) -> str:
    return os.path.join(folder, f"stream_memory.{position.epoch}.{position.turns}.rank{rank}.pt")


def _rank(path: str) -> int:
    """The rank of the process that wrote a memory file, from its name."""
    return int(path.rsplit("rank", 1)[1][: -len(".pt")])
