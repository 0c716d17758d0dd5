"""The memory of streams in files beside checkpoints, so that a resumed run equals an uninterrupted one.

Each process writes one file per checkpoint, whose name is a ``FileName``. (It does not contain the number of updates:
after a gradient overflow fairseq may save the same update again, one block later.) The files hold only plain tensors
and numbers. Two are kept, that of this checkpoint and that of the one before, so that whenever a run is killed, the
files of ``checkpoint_last.pt`` exist.
"""

import glob
import logging
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from fb_fairseq.errors import UserError
from fb_fairseq.streams.position import StreamPosition
from fb_fairseq.tensor_files import load_file, save_file

logger = logging.getLogger(__name__)

# Value of --save-stream-memory: floating-point type in the file ("exact": that of the model).
STORAGE_TYPES = {"exact": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
NAME = re.compile(r"stream_memory\.(\d+)\.(\d+)\.rank(\d+)\.pt")  # of a ``FileName``


class FileName(NamedTuple):
    """The parts of a memory file's name. Names of one rank are in the order in which the files were written.

    Attributes:
        epoch, turns: see ``StreamPosition``.
        rank: of the process that has written the file; ``*`` for any.
    """

    epoch: int
    turns: int
    rank: int | str

    def __str__(self) -> str:
        return f"stream_memory.{self.epoch}.{self.turns}.rank{self.rank}.pt"


class MemoryFiles:
    """Saves and loads the memory of streams.

    Args:
        storage: ``--save-stream-memory``: a key of ``STORAGE_TYPES``, or ``none`` to save nothing.

    Attributes:
        restored_from: the path that fairseq's trainer was asked to load last (on a first start without the file); None
            in evaluation.
    """

    def __init__(self, storage: str):
        self.storage = storage
        self.restored_from: str | None = None
        self._previous: FileName | None = None

    def save(
        self,
        folder: str,
        position: StreamPosition,
        *,
        run: str | None,
        rank: int,
        processes: int,
        states: Sequence[tuple[list[int], torch.Tensor]],
    ) -> None:
        """Save the memory of a process's streams, and remove the files that no checkpoint needs any more.

        Args:
            folder: where the checkpoint is going to be saved.
            position: the place in the epoch.
            run: identifies the run, in its checkpoints too.
            rank: the number of this process.
            processes: how many there are.
            states: pairs of B streams and their memory [K, C, B, D].
        """
        if self.storage == "none" or not states:
            return
        os.makedirs(folder, exist_ok=True)
        dtype = STORAGE_TYPES[self.storage]
        # Copied one by one: torch.save would write all of the tensor that a view belongs to.
        copies = [torch.empty_like(memory, device="cpu", dtype=dtype).copy_(memory) for _, memory in states]
        content = [(torch.tensor(streams), copy) for (streams, _), copy in zip(states, copies)]
        saved = {"place": position._asdict(), "run": run, "states": content}
        name = FileName(position.epoch, position.turns, rank)
        save_file(saved, os.path.join(folder, str(name)))
        self._remove_old_files(folder, name, processes)

    def _remove_old_files(self, folder: str, written: FileName, processes: int) -> None:
        """Remove all files but the one just written and those of the position before, which is the last that this run
        wrote or loaded, or else the latest by its name: until fairseq has replaced ``checkpoint_last.pt``, that needs
        them, also where it is from an earlier run with more processes. (File times are not reliable: clocks are set
        back, and copies keep dates.)
        """
        files = _memory_files(folder)
        own = [name for name in files if name.rank == written.rank and name != written]
        before = self._previous if self._previous in own else max(own, default=written)
        # An earlier run with more processes left files that no process of this one owns.
        orphans = [name for name in files if name.rank >= processes] if written.rank == 0 else []
        for name in {*own, *orphans}:
            if name[:2] != before[:2]:
                os.remove(files[name])
        self._previous = written

    def load(self, position: StreamPosition, run: str | None, rank: int, streams: list[int]) -> dict[int, torch.Tensor]:
        """Load the memory of streams at a position, whichever processes saved it.

        Args:
            position: the place in the epoch.
            run: what the checkpoint says; None if it is from before runs were identified.
            rank: the number of this process.
            streams: those that it needs.

        Returns:
            The memory [K, C, D] by stream, of at least these streams. Empty, with a warning, if any is not found.
        """
        self._previous = FileName(position.epoch, position.turns, rank)
        memory: dict[int, torch.Tensor] = {}
        files = _memory_files(os.path.dirname(self.restored_from or ""))
        # Our own file first: it suffices, unless the streams are divided differently among processes now.
        for name in sorted(files, key=lambda name: name.rank != rank):
            if name[:2] != self._previous[:2]:
                continue
            if all(stream in memory for stream in streams):
                break
            content = _read(files[name])
            if content["place"] == position._asdict() and content.get("run") == run:
                for ids, states in content["states"]:
                    memory.update(zip(ids, states.unbind(2)))
        if all(stream in memory for stream in streams):
            return memory
        logger.warning(
            f"no memory of the streams was found beside {self.restored_from} ({self._previous._replace(rank='*')}): "
            "they resume with an empty memory. Their next steps are predicted with less context, and the run will "
            "differ from an uninterrupted one."
        )
        return {}


def _read(path: str) -> dict[str, Any]:
    """The content of a memory file."""
    try:
        content = load_file(path)
        if not isinstance(content, dict) or not {"place", "states"} <= set(content):
            raise UserError("it is another file")
        content["states"] = [(ids.tolist(), states) for ids, states in content["states"]]
        return content
    except (OSError, UserError, AttributeError, TypeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).replace(f"{path}: ", "").split(";")[0]
        raise UserError(
            f"{path}: the streams' memory cannot be read ({reason}); remove the file to resume with an empty memory"
        ) from None


def _memory_files(folder: str) -> dict[FileName, str]:
    """The paths of a folder's memory files."""
    paths = glob.glob(os.path.join(glob.escape(folder), "stream_memory.*"))
    found = ((NAME.fullmatch(os.path.basename(path)), path) for path in paths)
    return {FileName(*map(int, name.groups())): path for name, path in found if name}
