"""Run a model on the text that the options name, for the panels for which models are run.

Each function of ``READ`` takes a ``LanguageModel`` and the options of ``fb-fairseq plot``, and returns what the panel
draws.
"""

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from fb_fairseq.commands.label_accuracy import PositionCounts, accuracy_by_position
from fb_fairseq.commands.plot import measures, persistent
from fb_fairseq.commands.plot.context import ContextLosses, losses_by_context
from fb_fairseq.commands.texts import load_data, load_inputs, text_of
from fb_fairseq.errors import UserError
from fb_fairseq.pretrained.model import LanguageModel


def of_streams(measure: Callable, model: LanguageModel, args: Namespace) -> Any:
    """Measure streams of the text of ``--prompt``, ``--text`` or ``--data``.

    Args:
        measure: a function of a model, tokens [B, T], and how many of a stream's first steps do not count.
        model: the model.
        args: the options.
    """
    if args.prompt is None and args.text is None:
        span = getattr(model.stack.options, "attention_span", 0)  # an LSTM has none
        return measure(model, *measures.cut_text(load_inputs(model, args.data, args.split), args.tokens, span))
    # One stream, whose first step, which attends to nothing, does not count.
    return measure(model, torch.tensor([text_of(model, args.prompt, args.text)]), 1)


def attention_map(model: LanguageModel, args: Namespace) -> measures.AttentionMap:
    """The attention between the tokens of ``--prompt`` or ``--text``."""
    return measures.attention_map(model, text_of(model, args.prompt, args.text), args.layer)


def context_perplexity(model: LanguageModel, args: Namespace) -> ContextLosses:
    """How well the tokens of ``--data`` are predicted with more and more context."""
    if model.labels:
        raise UserError(f"{model.source}: was trained with --labels; use --position-accuracy")
    return losses_by_context(model, load_inputs(model, args.data, args.split), args.tokens, args.context)


def position_accuracy(model: LanguageModel, args: Namespace) -> PositionCounts:
    """The numbers of labels of ``--data``, and of right ones, by position."""
    if args.data is None or not model.labels:
        raise UserError(f"{model.source}: give a model trained with --labels, and its data with --data")
    return accuracy_by_position(model, load_data(model, args.data, args.split), args.tokens)


READ: dict[str, Callable] = {  # by the option of the panel
    "attention": partial(of_streams, measures.mean_attention),
    "attention_map": attention_map,
    "persistent_shares": partial(of_streams, persistent.persistent_shares),
    "persistent_use": partial(of_streams, persistent.persistent_use),
    "context_perplexity": context_perplexity,
    "position_accuracy": position_accuracy,
}
