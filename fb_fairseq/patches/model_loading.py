"""Report in one line why a model of a checkpoint cannot be evaluated."""

import logging
import os
from collections.abc import Mapping

from fb_fairseq.checkpoint_contents import using
from fb_fairseq.errors import UserError, flag, single_line
from fb_fairseq.patches.wrapping import wrap_once

BEST = "checkpoint_best.pt"
STREAMS = "streaming_lm"

logger = logging.getLogger(__name__)


def patch_model_loading() -> None:
    """Refuse a missing --path, an ensemble where one model is evaluated, and parameters that do not fit.

    ``fairseq-eval-lm`` and ``fairseq-validate`` take ``a.pt:b.pt`` for one name, and a wrong --model-overrides prints
    the shapes of all parameters. Without --task, ``fairseq-eval-lm`` takes language_modeling: a warning says so where
    the model was trained on streams.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq reports these errors; none does yet.
    """
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "load_model_ensemble_and_task", "model_loading", _load_models)


def patch_hub_addresses() -> None:
    """Fetch nothing from an address that a checkpoint names.

    ``from_pretrained`` builds the BPE and the tokenizer that a checkpoint's configuration describes, within the
    constructor of fairseq's hub interface, and downloads their files. Addresses that are fairseq's own defaults, or
    given to ``from_pretrained``, are fetched as before.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq does not download them; none does yet.
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


def _load_models(original, filenames, *args, **kwargs):
    from fairseq.tasks import TASK_REGISTRY

    if None in filenames:
        raise UserError("--path is missing; give a checkpoint, for example --path checkpoints/checkpoint_best.pt")
    for name in filenames:
        if os.path.isdir(name):
            raise UserError(f"--path {name}: is a folder; give a file, for example {os.path.join(name, BEST)}")
        missing = not os.path.exists(name) and "://" not in name and not kwargs.get("suffix")
        if missing and os.pathsep in name:
            raise UserError(
                f"--path {name}: this command evaluates one model; give one checkpoint, or the average of several "
                "(python -m fb_fairseq average-checkpoints)"
            )
        if missing and kwargs.get("num_shards", 1) == 1:
            raise UserError(f"--path {name}: no such file; give a checkpoint")
    paths = os.pathsep.join(filenames)
    with using(f"--path {paths}", builds_model=True):
        try:
            models, cfg, task = original(filenames, *args, **kwargs)
        except RuntimeError as error:
            problems = [line.strip() for line in str(error).splitlines()[1:] if line.strip()]
            if "Error(s) in loading state_dict" not in str(error) or not problems:
                raise
            more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
            raise UserError(
                f"--path {paths}: the parameters do not fit the model; check --model-overrides: "
                f"{single_line(problems[0])}{more}"
            ) from None
        except Exception as error:
            if type(error) is not Exception:  # fairseq raises these with a message for users
                raise
            raise UserError(f"--path {paths}: {single_line(str(error))}") from None
    trained = cfg.task._name if cfg is not None and cfg.task is not None else None
    if trained == STREAMS and not isinstance(task, TASK_REGISTRY[STREAMS]):
        logger.warning(
            f"the model was trained with --task {STREAMS}; without this option, each sample starts with an empty memory"
        )
    return models, cfg, task
