"""Hooks that run whenever fairseq loads or saves a checkpoint.

fairseq has none, so ``fb_fairseq.patches`` wraps ``Trainer.load_checkpoint`` and ``save_checkpoint``, and
calls ``before_load``, ``after_load`` and ``before_save``. They are called for every task, model and iterator, fairseq's
own too, but act only on subclasses of ``ResumableTask``, ``InitialisedModel`` and ``SavesMemory``. (This module does
not import fairseq, so that the patches can import it first.)"""

import logging
import os
import uuid
from typing import Any

import torch

from fb_fairseq.errors import UserError

logger = logging.getLogger(__name__)


class ResumeInfo:
    """The checkpoint that a run resumes from, as its task knows it."""

    def __init__(self):
        # the path that fairseq's trainer was asked to load last (on a first start without the file); None in evaluation
        self.restored_from: str | None = None

    @property
    def folder(self) -> str:
        """The folder of the checkpoint, where the memory files are too."""
        return os.path.dirname(self.restored_from or "")


class ResumableTask:
    """Base class of tasks that need to know which checkpoint the run resumes from.

    Subclasses set ``resume`` in ``__init__``."""

    resume: ResumeInfo


class SavesMemory:
    """Base class of epoch iterators that save the memory of streams beside a checkpoint."""

    run: str | None = None  # identifies the run in checkpoints and memory files; None until its first checkpoint

    def save_memory(self, folder: str) -> None:
        """Save this process's part of the memory into the folder of checkpoints. Every process calls it."""
        raise NotImplementedError


class InitialisedModel:
    """Base class of models that can start with the parameters of a file (``--init-from-transformer``)."""

    # why that failed, an empty string if it succeeded, None if it was not asked for. A checkpoint of the run itself
    # takes precedence over the file, so a problem is only recorded when the model is built.
    initialisation_problem: str | None = None


def before_load(trainer: Any, filename: str) -> None:
    """Tell the task which checkpoint is about to be loaded. To be called before ``Trainer.load_checkpoint``.
    ``trainer``: fairseq's ``Trainer``. ``filename``: the path of the checkpoint, whether it exists or not."""
    if isinstance(trainer.task, ResumableTask):
        trainer.task.resume.restored_from = filename


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
    model = trainer.get_model()
    if not isinstance(model, InitialisedModel) or model.initialisation_problem is None:
        return
    if restored is not None:
        logger.info(f"{filename} takes precedence over --init-from-transformer")
    elif model.initialisation_problem:
        raise UserError(model.initialisation_problem)


def before_save(cfg: Any, trainer: Any, epoch_itr: Any) -> None:
    """Save the memory of the streams beside the checkpoint that is about to be written. To be called by every process
    before fairseq's ``save_checkpoint``, with the same arguments.

    Returns only when all processes have saved their part, so there is never a checkpoint without its memory.

    Args:
        cfg: fairseq's ``CheckpointConfig``; nothing is saved with ``--no-save``.
        trainer: fairseq's ``Trainer``.
        epoch_itr: the iterator over training batches."""
    if cfg.no_save or not isinstance(epoch_itr, SavesMemory):
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
