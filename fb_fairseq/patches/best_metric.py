"""Refuse an unknown ``--best-checkpoint-metric`` before training."""

from fb_fairseq.errors import UserError
from fb_fairseq.patches.wrapping import wrap_once


def patch_best_metric() -> None:
    """Try out before training whether validation measures what ``--best-checkpoint-metric`` names, on the first batch.

    fairseq fails after the first validation, before it saves anything. Only the criterion and the task know what they
    measure, and they do not say until they have done so. Nothing is tried for ``loss``, the default.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq asks criterions what they measure; none does yet.
    """
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "load_checkpoint", "best_metric", _load_and_check)


def _load_and_check(original, cfg, trainer, **kwargs):
    loaded = original(cfg, trainer, **kwargs)
    if cfg.best_checkpoint_metric != "loss" and not trainer.cfg.dataset.disable_validation:
        _check(cfg.best_checkpoint_metric, trainer)
    return loaded


def _check(metric: str, trainer) -> None:
    from fairseq.logging import metrics

    subset = trainer.cfg.dataset.valid_subset.split(",")[0]
    batches = trainer.get_valid_iterator(subset).next_epoch_itr(shuffle=False, set_dataset_epoch=False)
    found = set()
    with metrics.aggregate(new_root=True) as measured:
        for batch in batches:  # some measures, such as BLEU, a batch may lack
            trainer.valid_step(batch)
            found = set(measured.get_smoothed_values())
            if metric in found:
                break
    metrics.reset_meters("valid")
    if metric not in found:
        raise UserError(
            f"--best-checkpoint-metric {metric}: validation does not measure it; give one of {', '.join(sorted(found))}"
        )
