"""The hooks of streams, which run whenever fairseq loads or saves a checkpoint.

fairseq has none of its own. So ``fb_fairseq.patches`` wraps ``Trainer.load_checkpoint`` and ``save_checkpoint``, and
calls ``before_load``, ``after_load`` and ``before_save``. They are called for every task, model and iterator, fairseq's
own too, and act on these attributes where there are any:

    task.memory_files             the ``MemoryFiles`` of the run
    iterator.save_memory(folder)  saves this process's part of the memory into the folder of checkpoints
    iterator.run                  identifies the run in checkpoints and memory files; None until its first checkpoint
    model.initialisation_problem  why ``--init-from-transformer`` failed, an empty string if it succeeded. A checkpoint
                                  of the run itself takes precedence over that file, so a problem is only recorded when
                                  the model is built.

(The patches import this module first, so it does not import fairseq.)
"""

import logging
import uuid
from typing import Any

import torch

from fb_fairseq.errors import UserError

logger = logging.getLogger(__name__)


def before_load(trainer: Any, filename: str) -> None:
    """Tell the task's memory files which checkpoint is about to be loaded. To be called before
    ``Trainer.load_checkpoint``.

    Args:
        trainer: fairseq's ``Trainer``.
        filename: the path of the checkpoint, whether it exists or not.
    """
    files = getattr(trainer.task, "memory_files", None)
    if files is not None:
        files.restored_from = filename


def after_load(trainer: Any, filename: str, restored: dict | None) -> None:
    """Log where the run resumes; without a checkpoint, raise what went wrong with ``--init-from-transformer``.

    To be called after ``Trainer.load_checkpoint``.

    Args:
        trainer: fairseq's ``Trainer``.
        filename: the path of the checkpoint.
        restored: what ``Trainer.load_checkpoint`` returned: the checkpoint's ``extra_state``, or None without a file.
    """
    if restored is not None and trainer.get_num_updates():
        logger.info(f"resuming at update {trainer.get_num_updates()}")
    problem = getattr(trainer.get_model(), "initialisation_problem", None)
    if problem is not None and restored is not None:
        logger.info(f"{filename} takes precedence over --init-from-transformer")
    elif problem:
        raise UserError(problem)


def before_save(cfg: Any, trainer: Any, epoch_itr: Any) -> None:
    """Save the memory of the streams beside the checkpoint that is about to be written. To be called by every process
    before fairseq's ``save_checkpoint``, with the same arguments.

    Returns only when all processes have saved their part, so there is never a checkpoint without its memory.

    Args:
        cfg: fairseq's ``CheckpointConfig``; nothing is saved with ``--no-save``.
        trainer: fairseq's ``Trainer``.
        epoch_itr: the iterator over training batches.
    """
    if cfg.no_save or not hasattr(epoch_itr, "save_memory"):
        return
    several = trainer.data_parallel_world_size > 1
    group = trainer.data_parallel_process_group if several else None
    if epoch_itr.run is None:
        identity = [uuid.uuid4().hex]
        if several:
            torch.distributed.broadcast_object_list(identity, src=0, group=group)
        epoch_itr.run = identity[0]
    epoch_itr.save_memory(cfg.save_dir)
    if several:
        torch.distributed.barrier(group)
