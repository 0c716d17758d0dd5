"""Refuse a criterion that would ignore what a model was built with."""

from fb_fairseq.errors import UserError
from fb_fairseq.patches.wrapping import wrap_once


def require_lm_loss(task, option_name: str) -> None:
    """Have the task's criterion checked: only ``lm_loss`` does what this option of the task's model asks for.

    fairseq builds the criterion after the model, and from the task alone.
    """
    task.needs_lm_loss_for = option_name


def patch_criterion_check() -> None:
    """Refuse ``--criterion cross_entropy`` and the like where a model has called ``require_lm_loss``.

    fairseq's own criterions would train such a model, and leave out the penalty of adaptive spans or, with an adaptive
    softmax, take its features for logits.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq lets a model check the criterion; none does yet.
    """
    from fairseq import criterions

    wrap_once(criterions, "build_criterion", "criterion_check", _build_checked_criterion)


def _build_checked_criterion(original, cfg, task, *args, **kwargs):
    option_name = getattr(task, "needs_lm_loss_for", None)
    name = getattr(cfg, "_name", None) or getattr(cfg, "criterion", None)
    if option_name is not None and name != "lm_loss":
        raise UserError(f"--criterion {name} ignores {option_name}; use --criterion lm_loss")
    return original(cfg, task, *args, **kwargs)
