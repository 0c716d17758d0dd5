"""Refuse options that fairseq accepts and ignores, for every task and model."""

from typing import Any, Callable, Mapping

from fb_fairseq.errors import UserError, flag

REFINEMENT = (
    *("iter_decode_eos_penalty", "iter_decode_max_iter", "iter_decode_with_beam", "iter_decode_force_max_iter"),
    *("iter_decode_with_external_reranker", "retain_iter_history", "decoding_format", "print_step"),
)
SHARDS = ("num_shards", "shard_id")


def check_generation(args: Any, given: Callable[[str], bool]) -> None:
    """Check the command line of fairseq-generate and fairseq-interactive.

    Args:
        args: the parsed command line.
        given: whether an option stands on it.

    Raises:
        UserError: an option has no effect.
    """
    from fairseq.tasks import TASK_REGISTRY
    from fairseq.tasks.translation_lev import TranslationLevenshteinTask

    refines = issubclass(TASK_REGISTRY.get(args.task, object), TranslationLevenshteinTask)
    reasons = {
        **dict.fromkeys([] if refines else REFINEMENT, "is for models that refine a text in several passes"),
        **dict.fromkeys(SHARDS, "fairseq generates for the whole split; to divide the work, divide the data"),
    }
    for name, reason in reasons.items():
        if given(name):
            raise UserError(f"{flag(name)}: {reason}; leave it out")
    if given("retain_dropout_modules") and not args.retain_dropout:
        raise UserError("--retain-dropout-modules: has no effect without --retain-dropout; give that too")


def check_training(values: Mapping[str, Any]) -> None:
    """Check the values of training's options, from the command line or hydra.

    Raises:
        UserError: an option has no effect, or one that nobody wants.
    """
    name = "write_checkpoints_asynchronously"
    if name in values and values[name]:
        raise UserError(f"{flag(name)}: fairseq then writes no checkpoint_last.pt to resume from; leave it out")
