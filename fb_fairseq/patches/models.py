"""Models in training and evaluation: hooks; dictionaries and options of a checkpoint that fit."""

import logging
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

import fb_fairseq
from fb_fairseq.checksums import DICTIONARIES, check_dictionaries, dictionary_checksums
from fb_fairseq.errors import UserError, flag
from fb_fairseq.literals import parse_literal
from fb_fairseq.meaning import check_same_meaning
from fb_fairseq.patches.checkpoints import as_dict, trained
from fb_fairseq.patches.wrapping import wrap_once

logger = logging.getLogger(__name__)
STREAMS = "streaming_lm"


def patch_optimizer_step() -> None:
    """Call a model's ``after_optimizer_step(optimizer)``, which brings adaptive spans back into their bounds.

    Parameters that an update has moved out of their bounds would be validated, saved and trained further. fairseq tells
    only a task of an update.
    """
    from fairseq.tasks import FairseqTask

    wrap_once(FairseqTask, "optimizer_step", "optimizer_step", _optimizer_step)


def _optimizer_step(original, self, optimizer, model, update_num):
    original(self, optimizer, model, update_num)
    finish = getattr(model, "after_optimizer_step", None)
    if finish is not None:
        finish(optimizer)


def patch_encoder_fast_path() -> None:
    """Keep encoder layers that were loaded from a checkpoint off the fused path.

    On left-padded batches it fails with ``Mask Type should be defined``.

    Affects: fairseq 0.12.2. (fairseq-fixed has no fused path.)
    Remove when: fairseq 0.12.2 is no longer supported.
    """
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    if "_load_from_state_dict" in vars(TransformerEncoderLayerBase):
        wrap_once(TransformerEncoderLayerBase, "_load_from_state_dict", "encoder_fast_path", _load_without_fast_path)


def _load_without_fast_path(original, self, *args, **kwargs):
    original(self, *args, **kwargs)
    self.load_to_BT = False  # the original sets it, which selects the fused path ("better transformer")


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
            saved = with_architecture(trained(filename).model)
            check_same_meaning(filename, saved, with_architecture(given), "give the same, or another --save-dir")
    return extra_state


def with_architecture(options: Mapping[str, Any]) -> dict[str, Any]:
    """A model's options with its kind as ``arch``, without that of its sizes. (Parameters of a Transformer may have the
    names and shapes of a Feedback Transformer's.)
    """
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    name = options.get("arch") or options.get("_name")
    return {**options, "arch": ARCH_MODEL_NAME_REGISTRY.get(name, name)} if name else dict(options)


def is_ours(model: type | None) -> bool:
    """Whether a class of models is one of this package, or made from one."""
    return model is not None and any(kind.__module__.startswith(f"{fb_fairseq.__name__}.") for kind in model.__mro__)


def _load_and_compare(original, filenames, *args, **kwargs):
    from fairseq.tasks import TASK_REGISTRY

    try:
        models, cfg, task = original(filenames, *args, **kwargs)
    except OSError as error:
        if error.errno is None:  # fairseq's own
            raise UserError(f"{error}; give a checkpoint") from None
        raise
    for name in filenames:
        known = trained(name)
        if known.task.get("_name") == STREAMS and not isinstance(task, TASK_REGISTRY[STREAMS]):
            logger.warning(f"{name}: trained with --task {STREAMS}; else each sample starts with an empty memory")
        check_dictionaries(f"--path {name}", known.dictionaries, task_dictionaries(task))
        compare_task(f"--path {name}", known.task, getattr(task, "args", task.cfg))
        if len(filenames) == 1 and is_ours(type(models[0])):
            saved, given = with_architecture(known.model), with_architecture(as_dict(cfg.model))
            check_same_meaning(f"--path {name}", saved, given, "leave it out of --model-overrides")
    return models, cfg, task


def compare_task(path: str, known: Mapping[str, Any], cfg: Any) -> None:
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


def patch_model_overrides() -> None:
    """Set options that a checkpoint is older than with --model-overrides, and refuse names that no option has.

    fairseq ignores both: a figure would be that of another setting. For models of this package.
    """
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "overwrite_args_by_name", "model_overrides", _override)


def _override(original, cfg, overrides):
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    model = ARCH_MODEL_REGISTRY.get(getattr(cfg.model, "arch", None)) or MODEL_REGISTRY.get(cfg.model._name)
    if not is_ours(model):
        original(cfg, overrides)
        return
    # from_pretrained overrides also the names of files that it finds beside a checkpoint.
    parts = [kind for part in ("bpe", "tokenizer") for kind in REGISTRIES[part]["dataclass_registry"].values()]
    known = {field.name for kind in parts for field in fields(kind)}
    for group, kind in (("model", model), ("task", TASK_REGISTRY[cfg.task._name])):
        parser = ArgumentParser(add_help=False)
        kind.add_args(parser)
        own = {action.dest for action in parser._actions}
        known |= own
        if isinstance(cfg[group], DictConfig):
            with open_dict(cfg):
                cfg[group].update({name: overrides[name] for name in own - set(cfg[group]) if name in overrides})
    original(cfg, overrides)
    known |= _names(OmegaConf.to_container(cfg))
    # fairseq-validate overrides all that its command line has.
    for name in parse_literal(overrides["model_overrides"]) if "model_overrides" in overrides else overrides:
        if name not in known:
            raise UserError(f"--model-overrides: neither the model nor the task has an option {name!r}; leave it out")


def _names(values: Mapping[str, Any]) -> set[str]:
    """The names in a configuration, and in its groups."""
    return set(values).union(*(_names(value) for value in values.values() if isinstance(value, Mapping)))


def patch_hub_addresses() -> None:
    """Fetch nothing from an address that a checkpoint names.

    ``from_pretrained`` builds the BPE and the tokenizer that a checkpoint's configuration describes, within the
    constructor of fairseq's hub interface, and downloads their files. Addresses that are fairseq's own defaults, or
    given to ``from_pretrained``, are fetched as before.
    """
    from fairseq import hub_utils

    wrap_once(hub_utils, "from_pretrained", "hub_addresses", _load_from_hub)


def _load_from_hub(original, *args, **kwargs):
    from fairseq.registry import REGISTRIES

    loaded = original(*args, **kwargs)
    for part in ("bpe", "tokenizer"):
        options = loaded["args"][part] if part in loaded["args"] else None
        options = dict(options) if isinstance(options, Mapping) else {}
        for name, value in options.items():
            known = getattr(REGISTRIES[part]["dataclass_registry"].get(options.get("_name")), name, None)
            if "://" in str(value) and value not in (kwargs.get(name), known):
                raise UserError(
                    f"{flag(name)} {value}: an address that the checkpoint names, and that is not fetched; give a file "
                    f"or this address to from_pretrained ({name}=…)"
                )
    return loaded
