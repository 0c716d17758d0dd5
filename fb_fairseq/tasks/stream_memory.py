"""Files that hold the streams' memory beside a checkpoint, so that a resumed run equals an uninterrupted one.

One file a process and update: ``stream_memory.<update>.rank<r>.pt``. They hold plain tensors only. The newest and the
one before it stay: whenever the run is killed, ``checkpoint_last.pt`` finds its own.
"""

import glob
import logging
import os
import re
from typing import Dict, List

import torch

from fb_fairseq.errors import UserError
from fb_fairseq.modules import StreamState
from fb_fairseq.tasks.streams import StreamLayout

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
        self, folder: str, update: int, rank: int, layout: StreamLayout, states: Dict[int, StreamState]
    ) -> None:
        if self.kind == "none":
            return
        os.makedirs(folder, exist_ok=True)
        content = {
            "streams": torch.tensor([stream for group in states for stream in layout.group(group)]),
            "memory": torch.cat([state.memory_KCBD for state in states.values()], 2).to("cpu", TYPES[self.kind]),
        }
        path = os.path.join(folder, f"stream_memory.{update}.rank{rank}.pt")
        torch.save(content, path + ".tmp")
        os.replace(path + ".tmp", path)
        updates = {}
        for other in glob.glob(os.path.join(glob.escape(folder), f"stream_memory.*.rank{rank}.pt")):
            updates[int(re.search(r"\.(\d+)\.rank", other).group(1))] = other
        before = max((u for u in updates if u < update), default=update)
        for u, other in updates.items():
            if u not in (update, before):
                os.remove(other)

    def load(
        self, update: int, rank: int, layout: StreamLayout, groups: List[int], offset: int
    ) -> Dict[int, StreamState]:
        """The states of these groups, whichever processes saved them; none, with a warning, if no file is there.

        Raises:
            UserError: a file is there but cannot be read.
        """
        folder = glob.escape(os.path.dirname(self.task.restored_from))
        wanted = [stream for group in groups for stream in layout.group(group)]
        memory = {}
        # This process's own file first: it has all, unless the streams are shared out differently now.
        for path in sorted(
            glob.glob(os.path.join(folder, f"stream_memory.{update}.rank*.pt")),
            key=lambda path: not path.endswith(f".rank{rank}.pt"),
        ):
            if all(stream in memory for stream in wanted):
                break
            try:
                content = torch.load(path, map_location="cpu", weights_only=True)
            except Exception as error:
                raise UserError(
                    f"{path}: the streams' memory cannot be read; remove the file to go on with an empty memory"
                ) from error
            rows = content["memory"].unbind(2)
            memory.update(zip(content["streams"].tolist(), rows))
        if any(stream not in memory for stream in wanted):
            logger.warning(
                f"no memory of the streams beside {self.task.restored_from} (stream_memory.{update}.rank*.pt): they go "
                "on with an empty one. Their next steps are predicted with less context, and the run will differ from "
                "an uninterrupted one."
            )
            return {}
        return {
            group: StreamState(torch.stack([memory[stream] for stream in layout.group(group)], 2), offset)
            for group in groups
            if layout.group(group)
        }
