"""fairseq's checkpoints, with the streams' memory beside them and clear words when one does not fit.

fairseq has no hook that runs on every process when a checkpoint is saved, and says of a checkpoint that does not
load only that "architectures match" must be ensured. ``install`` wraps the four functions concerned, once.
"""

import functools
import glob
import os
import pickle
import shutil
import zipfile
from enum import Enum

from omegaconf import OmegaConf

from fb_fairseq.errors import UserError
from fb_fairseq.streams import resume


def install() -> None:
    from fairseq import checkpoint_utils, trainer
    from fairseq.file_io import PathManager

    if hasattr(checkpoint_utils.save_checkpoint, "__wrapped__"):
        return
    PathManager.copy = staticmethod(_copy_whole(PathManager.copy))
    checkpoint_utils.save_checkpoint = _save_memory_too(checkpoint_utils.save_checkpoint)
    checkpoint_utils.load_checkpoint_to_cpu = _name_broken_file(checkpoint_utils.load_checkpoint_to_cpu)
    trainer.Trainer.load_checkpoint = _name_misfit(trainer.Trainer.load_checkpoint)


def _copy_whole(copy):
    """``checkpoint_last.pt`` is a copy: make it appear whole or not at all, wherever the run is killed."""

    @functools.wraps(copy)
    def copy_whole(src_path, dst_path, overwrite=False):
        if not os.path.isfile(src_path):
            return copy(src_path, dst_path, overwrite=overwrite)
        shutil.copyfile(src_path, dst_path + ".tmp")
        os.replace(dst_path + ".tmp", dst_path)
        return True

    return copy_whole


def _save_memory_too(save):
    @functools.wraps(save)
    def save_checkpoint(cfg, trainer, epoch_itr, val_loss):
        resume.before_save(cfg, trainer, epoch_itr)
        return save(cfg, trainer, epoch_itr, val_loss)

    return save_checkpoint


def _name_broken_file(load):
    @functools.wraps(load)
    def load_checkpoint_to_cpu(path, *args, **kwargs):
        # torch.load itself does not look at the checksums.
        if zipfile.is_zipfile(path) and not is_whole(path):
            raise UserError(_broken(path))
        try:
            return load(path, *args, **kwargs)
        except (RuntimeError, EOFError, KeyError, pickle.UnpicklingError) as error:
            if is_whole(path) or "weights" in str(error).lower():  # a class that is not on the allow-list
                raise
            raise UserError(_broken(path)) from error

    return load_checkpoint_to_cpu


def _broken(path: str) -> str:
    others = glob.glob(os.path.join(glob.escape(os.path.dirname(path)), "checkpoint*.pt"))
    others = sorted((other for other in others if other != path), key=os.path.getmtime, reverse=True)
    good = next(filter(is_whole, others), None)
    remedy = (
        f"go on from {good}, which is whole (--restore-file in training, --path in evaluation)"
        if good
        else "no other checkpoint lies beside it, so start with another --save-dir"
    )
    return f"{path}: the checkpoint is truncated or corrupt; {remedy}"


def is_whole(path: str) -> bool:
    """Whether a checkpoint's archive is complete and its checksums are right."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile, EOFError):
        return False


def _name_misfit(load):
    @functools.wraps(load)
    def load_checkpoint(self, filename, *args, **kwargs):
        resume.before_load(self, filename)
        try:
            restored = load(self, filename, *args, **kwargs)
        except Exception as error:
            cause = error.__context__
            if isinstance(cause, UserError):  # fairseq covers it with a general message
                raise cause from None
            if "Cannot load model parameters" in str(error):
                raise UserError(f"{filename}: {_misfit(filename, self.cfg.model)}") from cause
            raise
        resume.after_load(self, filename, restored)
        return restored

    return load_checkpoint


def _misfit(filename: str, own) -> str:
    """In what a checkpoint's model differs from the one that was asked for."""
    from fairseq import checkpoint_utils

    saved, own = map(_plain, (checkpoint_utils.load_checkpoint_to_cpu(filename)["cfg"]["model"], own))
    name, own_name = (cfg.get("arch") or cfg["_name"] for cfg in (saved, own))
    if name != own_name:
        start = (
            "; to start a new model with its parameters give --init-from-transformer" if "transformer" in name else ""
        )
        return f"holds a {name}, not a {own_name}; give --arch {name}, or another --save-dir{start}"
    differing = [
        f"--{key.replace('_', '-')} {saved[key]} (not {own[key]})"
        for key in own
        if key in saved and not str(key).startswith("_") and saved[key] != own[key]
    ]
    if not differing:
        return "does not fit the model, though the options are the same: was it made by another version?"
    return f"was trained with {', '.join(differing)}; give the same, or another --save-dir"


def _plain(cfg) -> dict:
    """A model's configuration, which fairseq keeps as an OmegaConf container or as a Namespace."""
    if OmegaConf.is_config(cfg):
        return OmegaConf.to_container(cfg, enum_to_str=True)
    return {key: str(value) if isinstance(value, Enum) else value for key, value in vars(cfg).items()}
