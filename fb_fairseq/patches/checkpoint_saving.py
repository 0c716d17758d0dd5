"""Write and copy checkpoints atomically, and save the streams' memory with each of them."""

import os
import shutil

from fb_fairseq.files import atomic_write
from fb_fairseq.patches.wrapping import wrap_once
from fb_fairseq.streams import resume
from fb_fairseq.tensor_files import save_file


def patch_checkpoint_copy() -> None:
    """Copy checkpoints atomically, so that a run killed at any moment leaves a complete ``checkpoint_last.pt``.

    fairseq writes ``checkpoint_last.pt`` as a plain copy of the checkpoint it has just saved.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq copies atomically; none does yet.
    """
    from fairseq.file_io import PathManager

    wrap_once(PathManager, "copy", "checkpoint_copy", _copy_atomically)


def _copy_atomically(original, src_path, dst_path, overwrite=False):
    if not os.path.isfile(src_path):  # a remote path of iopath
        return original(src_path, dst_path, overwrite=overwrite)
    with atomic_write(dst_path) as temporary:
        shutil.copyfile(src_path, temporary)
    return True


def patch_checkpoint_writing() -> None:
    """Remove the temporary file if a checkpoint cannot be written, and say why in one line.

    fairseq leaves it on the full disk, and reports an error of torch's (``unexpected pos``).

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq removes it; none does yet.
    """
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "torch_persistent_save", "checkpoint_writing", _save_or_remove)


def _save_or_remove(original, obj, filename, async_write=False):
    from fairseq.file_io import PathManager

    if async_write or not isinstance(filename, str) or not PathManager.supports_rename(filename):
        return original(obj, filename, async_write=async_write)
    save_file(obj, filename)


def patch_stream_memory_saving() -> None:
    """Save the streams' memory beside each checkpoint. fairseq has no hook that every process runs at a checkpoint.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq has such a hook; none does yet.
    """
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "save_checkpoint", "stream_memory_saving", _save_checkpoint_with_stream_memory)


def _save_checkpoint_with_stream_memory(original, cfg, trainer, epoch_itr, val_loss):
    resume.before_save(cfg, trainer, epoch_itr)
    return original(cfg, trainer, epoch_itr, val_loss)
