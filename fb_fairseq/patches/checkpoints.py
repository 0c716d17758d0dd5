"""Read and copy checkpoints: intact ones only, and atomically."""

import os
import shutil
from collections.abc import Mapping
from typing import Any

from fb_fairseq.files import atomic_write
from fb_fairseq.patches.accounts import keep_account
from fb_fairseq.patches.wrapping import wrap_once
from fb_fairseq.tensor_files import load_checkpoint, using

# Options of models that name files which a new model starts from. A checkpoint has all parameters, so that to evaluate
# it, none of the files on the machine where it was trained is opened.
STARTED_FROM = {
    "init_from_transformer": "",
    "init_layers": "",
    "embed_path": None,
    "encoder_embed_path": None,
    "decoder_embed_path": None,
}


def patch_checkpoint_copy() -> None:
    """Copy checkpoints atomically, so that a run killed at any moment leaves a complete ``checkpoint_last.pt``.

    fairseq writes ``checkpoint_last.pt`` as a plain copy of the checkpoint it has just saved.
    """
    from fairseq.file_io import PathManager

    wrap_once(PathManager, "copy", "checkpoint_copy", _copy_atomically)


def _copy_atomically(original, src_path, dst_path, overwrite=False):
    if not os.path.isfile(src_path):  # a remote path of iopath
        return original(src_path, dst_path, overwrite=overwrite)
    with atomic_write(dst_path) as temporary:
        shutil.copyfile(src_path, temporary)
    return True


def patch_checkpoint_reading() -> None:
    """Load checkpoints as data only, refuse damaged ones, and clear the options of ``STARTED_FROM``.

    fairseq shows the unpickler's errors, ``torch.load`` does not verify checksums (it loads flipped bits silently), and
    below 2.6 it runs whatever code a checkpoint contains.
    """
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "load_checkpoint_to_cpu", "checkpoint_reading", _load_intact_checkpoint)


def _load_intact_checkpoint(original, path, *args, **kwargs):
    if not os.path.exists(path):  # a remote path of iopath, or missing
        state = original(path, *args, **kwargs)
        keep_account(path, state)
    else:
        keep_account(path, load_checkpoint(path, mapped=True))
        with using(path):
            state = original(path, *args, **kwargs)
    with using(path):
        _clear_starting_files(state)
    return state


def _clear_starting_files(state: dict[str, Any]) -> None:
    """Clear the options of ``STARTED_FROM`` in what a checkpoint holds."""
    model = (state.get("cfg") or {}).get("model")
    for options in (state.get("args"), model, *(_option(model, side) for side in ("encoder", "decoder"))):
        for name, value in STARTED_FROM.items():
            if _option(options, name) is not None:
                setattr(options, name, value)


def _option(options: Any, name: str) -> Any:
    """An option in a Namespace or an OmegaConf container; None without it."""
    if isinstance(options, Mapping):
        return options[name] if name in options else None  # (get raises in a container that allows no new keys)
    return getattr(options, name, None)
