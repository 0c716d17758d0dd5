"""Run all steps of a text at once, over and over, to see how soon the memory is that of the step loop."""

from typing import TYPE_CHECKING, NamedTuple

from fb_fairseq.commands.plot.models import LoadedModel, progress
from fb_fairseq.errors import UserError

if TYPE_CHECKING:  # torch is imported only in the functions that need it
    from torch import Tensor

MOST_PASSES = 40
STEPS = 512  # of a text, at most
LEAST_ERROR = 1e-6  # from here on, rounding decides


class PassErrors(NamedTuple):
    """The error of a model's memory after each pass, relative to its norm.

    Attributes:
        name: of the model, for the legend.
    """

    name: str
    errors: list[float]


def errors_by_pass(name: str, loaded: LoadedModel, tokens_BT: "Tensor") -> PassErrors:
    """Compare the memory of parallel passes with that of the step loop.

    Args:
        tokens_BT: streams that begin with an empty memory; their first ``STEPS`` steps are run.
    """
    import torch

    from fb_fairseq.modules.feedback_transformer import FeedbackTransformer
    from fb_fairseq.ops.feedback.loops import AUTO, run_block
    from fb_fairseq.ops.feedback.parallel import ParallelBlock, relative_change
    from fb_fairseq.ops.feedback.types import FeedbackDropouts

    stack = loaded.stack
    if not isinstance(stack, FeedbackTransformer):
        raise UserError(f"{loaded.source}: has no feedback memory; give a checkpoint of feedback_transformer_lm")
    with torch.no_grad():
        x_TBD = loaded.model.decoder.embed(tokens_BT[:, :STEPS].to(loaded.device), 0).transpose(0, 1)
        empty_KCBD = x_TBD.new_zeros(stack.memory.memories, 0, *x_TBD.shape[1:])
        weights, options = stack.loop_weights(x_TBD.device, stack.reaches()), stack.loop_options(max(stack.reaches()))
        given = x_TBD, empty_KCBD, weights, options, FeedbackDropouts(), stack.active_layers(), (), None
        exact_KTBD, block, errors = run_block(AUTO, *given)[1], ParallelBlock(*given), []
        memory_KTBD = block.start_KTBD
        for _ in progress(range(min(MOST_PASSES, len(x_TBD))), loaded):
            memory_KTBD = block(memory_KTBD).memory_KTBD
            errors.append(float(relative_change(memory_KTBD, exact_KTBD)))
            if errors[-1] < LEAST_ERROR:
                break
    return PassErrors(name, errors)


def draw_passes(axes, models: list[PassErrors]) -> None:
    """The error of the memory against the number of passes."""
    from fb_fairseq.drawing import colors

    color = colors(name for name, _ in models)
    for name, errors in models:
        axes.plot(range(1, len(errors) + 1), errors, label=name, color=color[name], marker=".")
    axes.set_yscale("log")
    axes.set_xlabel("passes over all steps at once")
    axes.set_ylabel("error of the memory, relative to its norm")


def values(models: list[PassErrors]) -> list[str]:
    """The drawn numbers, a line for each model."""
    return [f"{name or 'passes'}: {', '.join(f'{error:.2g}' for error in errors)}" for name, errors in models]
