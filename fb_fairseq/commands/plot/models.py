"""Run a model on the text that the options name, for the panels for which models are run.

Each function has the name of an option of ``KINDS``, takes a ``LanguageModel`` and the options of ``fb-fairseq plot``,
and returns what its panel draws.
"""

from argparse import Namespace

import torch
from torch import Tensor

from fb_fairseq.commands.evaluate_labels import PositionCounts, accuracy_by_position
from fb_fairseq.commands.plot import measures
from fb_fairseq.commands.plot.context import ContextLosses, losses_by_context
from fb_fairseq.commands.texts import load_data, load_inputs, text_of
from fb_fairseq.errors import UserError
from fb_fairseq.pretrained.model import LanguageModel


def attention(model: LanguageModel, args: Namespace) -> measures.Shares:
    """The attention by layer and distance."""
    return measures.mean_attention(model, *streams(model, args))


def persistent_shares(model: LanguageModel, args: Namespace) -> measures.Shares:
    """The share of attention on persistent vectors by layer and head."""
    return measures.persistent_shares(model, *streams(model, args))


def persistent_use(model: LanguageModel, args: Namespace) -> list[list[float]]:
    """The share of that attention which the most used vectors take, by layer and number of vectors."""
    return measures.persistent_use(model, *streams(model, args))


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


def streams(model: LanguageModel, args: Namespace) -> tuple[Tensor, int]:
    """The text of ``--prompt``, ``--text`` or ``--data`` as streams of tokens [B, T], and how many of a stream's first
    steps do not count.
    """
    if args.prompt is None and args.text is None:
        span = getattr(model.stack.options, "attention_span", 0)  # an LSTM has none
        return measures.cut_text(load_inputs(model, args.data, args.split), args.tokens, span)
    # One stream, whose first step, which attends to nothing, does not count.
    return torch.tensor([text_of(model, args.prompt, args.text)]), 1
