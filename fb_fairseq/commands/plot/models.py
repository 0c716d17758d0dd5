"""Run a model on the text that the options name, for the panels for which models are run.

Each function takes a ``LanguageModel`` and the options of ``fb-fairseq plot``, and returns what its panel draws. torch
and fairseq are imported only to run a model.
"""

from argparse import Namespace
from typing import TYPE_CHECKING

from fb_fairseq.commands.texts import load_data, load_inputs, text_of
from fb_fairseq.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from fb_fairseq.commands.evaluate_labels import PositionCounts
    from fb_fairseq.commands.plot.context import ContextLosses
    from fb_fairseq.commands.plot.measures import AttentionMap, Shares
    from fb_fairseq.pretrained.model import LanguageModel


def mean_attention(model: "LanguageModel", args: Namespace) -> "Shares":
    """The attention by layer and distance."""
    from fb_fairseq.commands.plot import measures

    return measures.mean_attention(model, *streams(model, args))


def persistent_shares(model: "LanguageModel", args: Namespace) -> "Shares":
    """The share of attention on persistent vectors by layer and head."""
    from fb_fairseq.commands.plot import measures

    return measures.persistent_shares(model, *streams(model, args))


def persistent_use(model: "LanguageModel", args: Namespace) -> list[list[float]]:
    """The share of that attention which the most used vectors take, by layer and number of vectors."""
    from fb_fairseq.commands.plot import measures

    return measures.persistent_use(model, *streams(model, args))


def attention_map(model: "LanguageModel", args: Namespace) -> "AttentionMap":
    """The attention between the tokens of ``--prompt`` or ``--text``."""
    from fb_fairseq.commands.plot import measures

    return measures.attention_map(model, text_of(model, args.prompt, args.text), args.layer)


def context_losses(model: "LanguageModel", args: Namespace) -> "ContextLosses":
    """How well the tokens of ``--data`` are predicted with more and more context."""
    from fb_fairseq.commands.plot.context import losses_by_context

    if model.labels:
        raise UserError(f"{model.source}: was trained with --labels; use --position-accuracy")
    return losses_by_context(model, load_inputs(model, args.data, args.split), args.tokens, args.context)


def position_accuracy(model: "LanguageModel", args: Namespace) -> "PositionCounts":
    """The numbers of labels of ``--data``, and of right ones, by position."""
    from fb_fairseq.commands.evaluate_labels import accuracy_by_position

    if args.data is None or not model.labels:
        raise UserError(f"{model.source}: give a model trained with --labels, and its data with --data")
    return accuracy_by_position(model, load_data(model, args.data, args.split), args.tokens)


def streams(model: "LanguageModel", args: Namespace) -> tuple["Tensor", int]:
    """The text of ``--prompt``, ``--text`` or ``--data`` as streams of tokens [B, T], and how many of a stream's first
    steps do not count.
    """
    import torch

    from fb_fairseq.commands.plot.measures import cut_text

    if args.prompt is None and args.text is None:
        span = getattr(model.stack.options, "attention_span", 0)  # an LSTM has none
        return cut_text(load_inputs(model, args.data, args.split), args.tokens, span)
    # One stream, whose first step, which attends to nothing, does not count.
    return torch.tensor([text_of(model, args.prompt, args.text)]), 1
