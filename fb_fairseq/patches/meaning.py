"""Data and models for which a checkpoint's numbers would mean something else than in its training."""

import inspect
import logging
from collections.abc import Mapping
from enum import Enum
from typing import Any

from omegaconf import OmegaConf

from fb_fairseq.checksums import DICTIONARIES, check_dictionaries, dictionary_checksums
from fb_fairseq.errors import UserError
from fb_fairseq.meaning import check_same_meaning
from fb_fairseq.patches.accounts import account_of
from fb_fairseq.patches.wrapping import is_ours, wrap_once

logger = logging.getLogger(__name__)
STREAMS = "streaming_lm"


def patch_meaning_check() -> None:
    """Refuse data and models for which a checkpoint's numbers would mean something else than in its training.

    fairseq compares sizes alone. Those of dictionaries are often equal: fairseq-preprocess makes them multiples of 8,
    and ``--nwords`` fixes them. Every word then stands for another one. So do those of parameters, whatever the number
    of heads, say.
    """
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    wrap_once(Trainer, "save_checkpoint", "meaning_check", _save)
    wrap_once(Trainer, "load_checkpoint", "meaning_check", _load_in_training)
    wrap_once(checkpoint_utils, "load_model_ensemble_and_task", "meaning_check", _load_and_compare)


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
    given = as_dict(self.cfg.model)  # before pruning changes it
    extra_state = original(self, filename, *args, **kwargs)
    if extra_state is not None:
        check_dictionaries(filename, extra_state.get(DICTIONARIES), task_dictionaries(self.task))
        if is_ours(type(self.get_model())):
            saved = with_architecture(account_of(filename).model)
            check_same_meaning(filename, saved, with_architecture(given), "give the same, or another --save-dir")
    return extra_state


def with_architecture(options: Mapping[str, Any]) -> dict[str, Any]:
    """A model's options with its kind as ``arch``, without that of its sizes. (Parameters of a Transformer may have the
    names and shapes of a Feedback Transformer's.)
    """
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    name = options.get("arch") or options.get("_name")
    return {**options, "arch": ARCH_MODEL_NAME_REGISTRY.get(name, name)} if name else dict(options)


def as_dict(cfg: Any) -> dict[str, Any]:
    """A model's configuration as a dict. fairseq keeps it as an OmegaConf container or as a Namespace."""
    if OmegaConf.is_config(cfg):
        return OmegaConf.to_container(cfg, enum_to_str=True)
    return {name: str(value) if isinstance(value, Enum) else value for name, value in vars(cfg).items()}


def _load_and_compare(original, filenames, *args, **kwargs):
    try:
        models, cfg, task = original(filenames, *args, **kwargs)
    except OSError as error:
        if error.errno is None:  # fairseq's own
            raise UserError(f"{error}; give a checkpoint") from None
        raise
    except RuntimeError as error:
        overrides = inspect.signature(original).bind(filenames, *args, **kwargs).arguments.get("arg_overrides")
        if overrides and str(error).startswith("Error(s) in loading state_dict"):  # torch's
            raise UserError(
                f"--path {filenames[0]}: its parameters are not those of a model with --model-overrides {overrides}; "
                "leave out what changes their shapes"
            ) from None
        raise
    for name in filenames:
        _check_task(name, task)
    if len(filenames) == 1 and is_ours(type(models[0])):
        saved = with_architecture(account_of(filenames[0]).model)
        given = with_architecture(as_dict(cfg.model))
        check_same_meaning(f"--path {filenames[0]}", saved, given, "leave it out of --model-overrides")
    return models, cfg, task


def _check_task(path: str, task: Any) -> None:
    """Check that a task has the dictionaries of a checkpoint's training, and let it read data as then."""
    from fairseq.tasks import TASK_REGISTRY

    known = account_of(path)
    if known.task.get("_name") == STREAMS and not isinstance(task, TASK_REGISTRY[STREAMS]):
        logger.warning(
            f"{path}: was trained with --task {STREAMS}; without this option, each sample starts with an empty memory"
        )
    check_dictionaries(f"--path {path}", known.dictionaries, task_dictionaries(task))
    read_as_in_training(f"--path {path}", known.task, getattr(task, "args", task.cfg))


def read_as_in_training(path: str, known: Mapping[str, Any], cfg: Any) -> None:
    """Let a task read data as in the training of a checkpoint, or refuse it.

    Args:
        path: the checkpoint and its option.
        known: the options of the task of its training.
        cfg: those of this task, which are changed.
    """
    if known.get("_name") != STREAMS:
        return
    if known.get("labels") and not getattr(cfg, "labels", False):
        raise UserError(f"{path}: predicts labels, not the next symbol; use fb-fairseq evaluate-labels")
    if getattr(cfg, "omit_eos", False) and not known.get("omit_eos"):
        raise UserError(f"--omit-eos: {path} was trained without it, on text with </s> at line ends; leave it out")
    if known.get("omit_eos"):
        if not hasattr(cfg, "omit_eos"):
            raise UserError(
                f"{path}: was trained with --omit-eos, which this task does not have; give --task {STREAMS}"
            )
        cfg.omit_eos = True
