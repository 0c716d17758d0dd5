"""The options of fairseq that end training."""

import math

from fb_fairseq.errors import flag


def limit_reached(
    cfg, *, updates: int, hours: float, next_epoch: int = 0, worse: int = 0, lr: float = math.inf
) -> str | None:
    """The option that ends training here, and how far training has come; None if it goes on.

    Args:
        cfg: fairseq's configuration.
        updates: the number of updates so far.
        hours: the time that training has taken so far.
        next_epoch: the epoch that would go on or begin, counted from 1; 0: the epoch has not ended.
        worse: the number of validations since the best one.
        lr: the learning rate; infinite: it is not looked at.
    """
    limits, patience = cfg.optimization, cfg.checkpoint.patience
    if limits.max_update and updates >= limits.max_update:
        return f"update {updates} of {flag('max_update')} {limits.max_update}"
    if limits.max_epoch and next_epoch > limits.max_epoch:
        return f"epoch {next_epoch - 1} of {flag('max_epoch')} {limits.max_epoch}"
    if limits.stop_time_hours > 0 and hours > limits.stop_time_hours:
        return f"{hours:.4g} hours of {flag('stop_time_hours')} {limits.stop_time_hours:g}"
    if lr <= limits.stop_min_lr:
        return f"learning rate {lr:g}, {flag('stop_min_lr')} {limits.stop_min_lr:g}"
    if 0 < patience <= worse:
        return f"{worse} validations without improvement, {flag('patience')} {patience}"
    return None
