"""The kinds of panels, by the options that draw them."""

from collections.abc import Callable
from typing import NamedTuple

from fb_fairseq.commands.plot import checkpoints, logs, panels

LOGS, CHECKPOINTS, MODELS = "panels from logs", "panels from checkpoints alone", "panels for which models are run"


class Kind(NamedTuple):
    """An option that draws a panel of what its paths contain.

    Attributes:
        group: of options, by what they read.
        draw: draws what was read, by name; or with ``each``, of a single path.
        help: of the option.
        read: reads what is drawn of a path; None: ``READ`` in models.py has a function for the option.
        each: whether each path has a panel of its own.
        wide: see ``Panel``.
        size: the size of a panel of what was read, see ``Panel``; None: the usual one.
        table: lines of text with the numbers that are drawn; None: there are none.
    """

    group: str
    draw: Callable
    help: str
    read: Callable | None = None
    each: bool = False
    wide: bool = False
    size: Callable | None = None
    table: Callable | None = None


KINDS = {  # by option; beside them is --curves
    "layer_weights_over_training": Kind(
        LOGS,
        panels.draw_layer_weights_over_training,
        "draw the layers' weights in the feedback memory (Eq. 1) at each validation",
        logs.read_layer_weights,
        each=True,
    ),
    "layer_weights": Kind(
        CHECKPOINTS,
        panels.draw_layer_weights,
        "draw the layers' weights in the feedback memory",
        checkpoints.layer_weights,
    ),
    "spans": Kind(
        CHECKPOINTS,
        panels.draw_spans,
        "draw adaptive spans by layer and head",
        checkpoints.adaptive_spans,
    ),
    "attention": Kind(
        MODELS,
        panels.draw_shares,
        "draw the share of attention by layer and distance, mean of all heads",
        each=True,
        wide=True,
    ),
    "attention_map": Kind(
        MODELS,
        panels.draw_attention_map,
        "draw the attention between the tokens of a short text",
        each=True,
        wide=True,
        size=panels.map_size,
    ),
    "persistent_shares": Kind(
        MODELS,
        panels.draw_shares,
        "draw the share of attention on persistent vectors by layer and head",
        each=True,
    ),
    "persistent_use": Kind(
        MODELS,
        panels.draw_persistent_use,
        "draw how few persistent vectors take how much of that attention",
        each=True,
    ),
    "context_perplexity": Kind(
        MODELS,
        panels.draw_context_losses,
        "draw perplexity (of byte models, bits per byte) against the context that is available, for the same tokens of "
        "--data",
        table=panels.context_table,
    ),
    "position_accuracy": Kind(
        MODELS,
        panels.draw_position_accuracy,
        "draw the accuracy of models trained with --labels against the position in a sequence of --data",
    ),
}
