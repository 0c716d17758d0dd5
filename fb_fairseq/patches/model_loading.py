"""Report in one line why a model of a checkpoint cannot be evaluated."""

import os

from fb_fairseq.errors import UserError, single_line
from fb_fairseq.patches.wrapping import wrap_once

BEST = "checkpoint_best.pt"


def patch_model_loading() -> None:
    """Refuse a missing --path, an ensemble where one model is evaluated, and parameters that do not fit.

    ``fairseq-eval-lm`` and ``fairseq-validate`` take ``a.pt:b.pt`` for one name, and a wrong --model-overrides prints
    the shapes of all parameters.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq reports these errors; none does yet.
    """
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "load_model_ensemble_and_task", "model_loading", _load_models)


def _load_models(original, filenames, *args, **kwargs):
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
    try:
        return original(filenames, *args, **kwargs)
    except RuntimeError as error:
        problems = [line.strip() for line in str(error).splitlines()[1:] if line.strip()]
        if "Error(s) in loading state_dict" not in str(error) or not problems:
            raise
        more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(
            f"--path {os.pathsep.join(filenames)}: the parameters do not fit the model; check --model-overrides: "
            f"{single_line(problems[0])}{more}"
        ) from None
