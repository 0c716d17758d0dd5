"""A checkpoint knows the dictionaries that its model was trained with, by their checksums."""

import os
from typing import Any

from fb_fairseq.checksums import DICTIONARIES, check_dictionaries, dictionary_checksums, trained_dictionaries
from fb_fairseq.patches.wrapping import wrap_once

_read: dict[str, dict[str, str]] = {}  # checkpoints that this process has read: their dictionaries


def patch_dictionary_check() -> None:
    """Refuse data of other dictionaries than those of the training, with as many symbols.

    fairseq compares sizes alone, which are often equal: fairseq-preprocess makes them multiples of 8, and ``--nwords``
    fixes them. Every word then stands for another one.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq compares the symbols; none does yet.
    """
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    wrap_once(Trainer, "save_checkpoint", "dictionary_check", _save)
    wrap_once(Trainer, "load_checkpoint", "dictionary_check", _load_in_training)
    wrap_once(checkpoint_utils, "load_checkpoint_to_cpu", "dictionary_check", _read_checkpoint)
    wrap_once(checkpoint_utils, "load_model_ensemble_and_task", "dictionary_check", _load_and_compare)


def task_dictionaries(task: Any) -> dict[str, str]:
    """The checksums of a task's dictionaries, by language, or as ``source`` and ``target``."""
    found = getattr(task, "dicts", None)  # of several languages
    if not isinstance(found, dict):
        found = {}
        for side in ("source", "target"):
            try:
                found[side] = getattr(task, f"{side}_dictionary")
            except (AttributeError, NotImplementedError):
                continue
    return dictionary_checksums(found)


def _save(original, self, filename, extra_state):
    return original(self, filename, {**extra_state, DICTIONARIES: task_dictionaries(self.task)})


def _load_in_training(original, self, filename, *args, **kwargs):
    extra_state = original(self, filename, *args, **kwargs)
    if extra_state is not None:
        check_dictionaries(filename, extra_state.get(DICTIONARIES), task_dictionaries(self.task))
    return extra_state


def _read_checkpoint(original, path, *args, **kwargs):
    state = original(path, *args, **kwargs)
    _read[os.path.abspath(path)] = trained_dictionaries(state)
    return state


def _load_and_compare(original, filenames, *args, **kwargs):
    models, cfg, task = original(filenames, *args, **kwargs)
    for name in filenames:
        check_dictionaries(f"--path {name}", _read.get(os.path.abspath(name)), task_dictionaries(task))
    return models, cfg, task
