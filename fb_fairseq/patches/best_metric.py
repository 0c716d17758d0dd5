"""A ``--best-checkpoint-metric`` that validation does not measure."""

from fb_fairseq.errors import UserError
from fb_fairseq.patches.training_signals import without_last_checkpoint
from fb_fairseq.patches.wrapping import training_modules, wrap_once


def patch_best_metric() -> None:
    """Save a checkpoint before the end of a training that lacks its --best-checkpoint-metric.

    Only the first validation shows what a criterion and a task measure, and fairseq fails then, before it saves.
    """
    for module in training_modules():
        wrap_once(module, "validate", "best_metric", _validate)


def _validate(original, cfg, trainer, task, epoch_itr, subsets):
    from fairseq import checkpoint_utils

    try:
        return original(cfg, trainer, task, epoch_itr, subsets)
    except KeyError as error:
        metric = cfg.checkpoint.best_checkpoint_metric
        if error.args != (metric,):
            raise
        without = without_last_checkpoint(cfg)
        if not without:
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
        saved = f"not saved, because of {without}" if without else "saved"
        raise UserError(
            f"--best-checkpoint-metric {metric}: validation does not measure it; give a measure that its log has "
            f"(checkpoint_last.pt is {saved})"
        ) from None
