"""The memory of streams beside checkpoints: the hooks of ``fb_fairseq.streams.hooks``, around fairseq's functions."""

from fb_fairseq.patches.wrapping import wrap_once
from fb_fairseq.streams.hooks import after_load, before_load, before_save


def patch_stream_memory_saving() -> None:
    """Save the streams' memory beside each checkpoint. fairseq has no hook that every process runs at a checkpoint."""
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "save_checkpoint", "stream_memory_saving", _save_checkpoint_with_stream_memory)


def _save_checkpoint_with_stream_memory(original, cfg, trainer, epoch_itr, val_loss):
    before_save(cfg, trainer, epoch_itr)
    return original(cfg, trainer, epoch_itr, val_loss)


def patch_resume_hooks() -> None:
    """Call ``fb_fairseq.streams.hooks.before_load`` and ``after_load`` around the loading of a checkpoint.

    A task must know which checkpoint its run resumes from, because the streams' memory lies in the same folder; and
    only after loading it is known whether a model needed ``--init-from-transformer``, because it is built before.
    fairseq gives the file's name to no hook of a task, model or iterator.
    """
    from fairseq.trainer import Trainer

    wrap_once(Trainer, "load_checkpoint", "resume_hooks", _load_with_resume_hooks)


def _load_with_resume_hooks(original, self, filename, *args, **kwargs):
    before_load(self, filename)
    restored = original(self, filename, *args, **kwargs)
    after_load(self, filename, restored)
    return restored
