"""Calls to a model that no task of fairseq makes: before a training step, and after the optimizer's.

They are patches rather than methods of ``streaming_lm``, because tasks of fairseq's own, such as ``language_modeling``,
train this package's models too. A model that lacks the method is left alone.
"""

from fb_fairseq.patches.wrapping import wrap_once


def patch_train_step() -> None:
    """Call a model's ``before_train_step(sample)``, which chooses torch's number of threads before the first one.

    The choice depends on the size of the batch, and is made for the whole process. fairseq has no hook that is given a
    batch but the model's own ``forward``, which must not change the process.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq has such a hook; none does yet.
    """
    from fairseq.tasks import FairseqTask

    wrap_once(FairseqTask, "train_step", "train_step", _train_step)


def _train_step(original, self, sample, model, *args, **kwargs):
    prepare = getattr(model, "before_train_step", None)
    if prepare is not None:
        prepare(sample)
    return original(self, sample, model, *args, **kwargs)


def patch_optimizer_step() -> None:
    """Call a model's ``after_optimizer_step(optimizer)``, which brings adaptive spans back into their bounds.

    Parameters that an update has moved out of their bounds would be validated, saved and trained further.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1: only a task is told of an update.
    Remove when: a supported fairseq has such a hook; none does yet.
    """
    from fairseq.tasks import FairseqTask

    wrap_once(FairseqTask, "optimizer_step", "optimizer_step", _optimizer_step)


def _optimizer_step(original, self, optimizer, model, update_num):
    original(self, optimizer, model, update_num)
    finish = getattr(model, "after_optimizer_step", None)
    if finish is not None:
        finish(optimizer)
