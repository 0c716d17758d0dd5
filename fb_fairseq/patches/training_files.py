"""Files that fairseq-train reads and writes: --restore-file, --save-dir, --log-file."""

import logging
import os

from fb_fairseq.errors import UserError
from fb_fairseq.folders import check_output_folder, lock_folder
from fb_fairseq.patches.wrapping import wrap_once


def patch_restore_file() -> None:
    """Refuse a --restore-file that does not exist. fairseq trains from scratch."""
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "load_checkpoint", "restore_file", _load_existing_checkpoint)


def _load_existing_checkpoint(original, cfg, trainer, **kwargs):
    from fairseq.dataclass.configs import CheckpointConfig
    from fairseq.file_io import PathManager

    if cfg.restore_file != CheckpointConfig.restore_file:
        path = cfg.restore_file.replace(".pt", f"{trainer.checkpoint_suffix or ''}.pt")
        if not PathManager.isfile(path):
            raise UserError(
                f"--restore-file {path}: no such file; give a checkpoint, or leave it out to resume from the "
                "checkpoint_last.pt in --save-dir, if there is one"
            )
    return original(cfg, trainer, **kwargs)


def patch_save_dir_lock() -> None:
    """Let one run at a time write to a --save-dir. Two would overwrite each other's checkpoints.

    Say what is wrong with one that cannot be written to, and make it. fairseq's own check is replaced: it writes a file
    ``dummy`` there, and removes it, even if it is the user's.
    """
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "load_checkpoint", "save_dir_lock", _load_and_lock)
    wrap_once(checkpoint_utils, "verify_checkpoint_directory", "save_dir_check", _check)


def _check(original, save_dir):  # in the place of the original, which is not called
    check_output_folder("--save-dir", save_dir)
    os.makedirs(save_dir, exist_ok=True)


def _load_and_lock(original, cfg, trainer, **kwargs):
    loaded = original(cfg, trainer, **kwargs)  # first, so that a run that is refused leaves no lock behind
    if trainer.data_parallel_rank == 0 and not cfg.no_save:
        lock_folder("--save-dir", cfg.save_dir)
    return loaded


def patch_log_file() -> None:
    """Open ``--log-file`` once. fairseq adds a handler for it in every epoch, and each writes every line."""
    from fairseq.logging import progress_bar

    wrap_once(progress_bar, "progress_bar", "log_file", _progress_bar_with_one_log_file)


def _progress_bar_with_one_log_file(original, *args, log_file=None, **kwargs):
    from fairseq.logging import progress_bar

    handlers = progress_bar.logger.handlers
    opened = [handler.baseFilename for handler in handlers if isinstance(handler, logging.FileHandler)]
    if log_file is not None and os.path.abspath(log_file) in opened:
        log_file = None
    return original(*args, log_file=log_file, **kwargs)
