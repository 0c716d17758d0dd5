"""Parts of the models: options as fields of configurations, input and output layers of language models, and decoders
whose adaptive softmax obeys ``--temperature``.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.constants import StrEnum
from torch import Tensor

from fb_fairseq.command_line import option
from fb_fairseq.errors import UserError, flag
from fb_fairseq.modules.words import WordLayers, WordOptions, build_word_layers
from fb_fairseq.ops.feedback.loops import OLD_NAMES

Described = dict[str, tuple[Any, Any]]  # by name: the type of a field, and the field
LOG_PROBS = "log_probs"  # the entry of a decoder's second output that says what the first one is
Output = tuple[Tensor, dict[str, Any]]


def described(source: type, *names: str, **defaults: Any) -> Described:
    """Options as fields of a fairseq configuration, with the help texts and choices of ``source``.

    Args:
        source: an options dataclass, whose fields are made with ``fb_fairseq.command_line.option``.
        names: which of its fields; none, and no defaults: all.
        defaults: further fields, with other defaults than in ``source``.
    """
    own = {f.name: f for f in fields(source)}
    result = {}
    for name in [*names, *defaults] or own:
        choices = own[name].metadata.get("choices")
        kind = own[name].type
        if choices:  # (as ``ChoiceEnum``; former names are aliases, which help does not show)
            kind = StrEnum("Choices", {**{key: key for key in choices}, **own[name].metadata.get("former", {})})
        result[name] = kind, option(defaults.get(name, own[name].default), own[name].metadata["help"])
    return result


class WithFormer(list):
    """The choices of an option on the command line; its former names, too, which help does not show."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in OLD_NAMES


def accept_former_names(parser) -> None:
    """Accept former names of step loops on a command line."""
    for action in parser._actions:
        if action.dest == "step_loop":
            action.choices = WithFormer(action.choices)


def with_options(*groups: Described) -> Callable[[type], type]:
    """Class decorator: make a dataclass that has these fields, and those of its own body."""

    def decorate(cls: type) -> type:
        annotations = {}
        for name, (kind, field) in (item for group in groups for item in group.items()):
            annotations[name] = kind
            setattr(cls, name, field)
        cls.__annotations__ = {**annotations, **cls.__dict__.get("__annotations__", {})}
        return dataclass(cls)

    return decorate


def make_options(kind: type, cfg: Any, **more: Any) -> Any:
    """An options dataclass of ``fb_fairseq.modules``, from a configuration of fairseq.

    Args:
        kind: the dataclass. Its options that the configuration has not, or as None, keep their defaults.
        cfg: the configuration. Its enumerations become plain text.
        more: further values, which take precedence.
    """
    given = {f.name: getattr(cfg, f.name, None) for f in fields(kind)}
    values = {name: str(value) if isinstance(value, Enum) else value for name, value in given.items()}
    return kind(**{name: value for name, value in {**values, **more}.items() if value is not None})


def word_layers(cfg, dictionary: Dictionary, output_dictionary: Dictionary) -> WordLayers:
    """Build the embeddings and the output layer of a decoder. ``cfg``: a ``LanguageModelConfig``.
    ``output_dictionary``: that of the targets; may be ``dictionary`` itself.
    """
    if output_dictionary is not dictionary:
        for name in ("share_decoder_input_output_embed", "tie_adaptive_weights"):
            if getattr(cfg, name):
                raise UserError(f"{flag(name)}: inputs and labels (--labels) have different dictionaries; leave it out")
    options = make_options(WordOptions, cfg)
    return build_word_layers(options, cfg.decoder_embed_dim, len(dictionary), dictionary.pad(), len(output_dictionary))


def vocabulary_size(state_dict: dict[str, Tensor], prefix: str) -> int:
    """Number of symbols of a checkpoint's embeddings, plain or adaptive; 0 if there are none of this prefix."""
    plain = state_dict.get(f"{prefix}weight")
    if plain is not None:
        return len(plain)
    return sum(
        len(value)
        for name, value in state_dict.items()
        if name.startswith(f"{prefix}embeddings.") and name.endswith(".0.weight")
    )


def check_dictionary(state_dict: dict[str, Tensor], side: str, dictionary: Dictionary, file: str = "dict.txt") -> None:
    """Check a checkpoint's embeddings against the dictionary of the data. ``side``: ``encoder`` or ``decoder``.
    ``file``: the dictionary's name, for the error.
    """
    saved = vocabulary_size(state_dict, f"{side}.embed_tokens.")
    own = len(dictionary)
    if saved and saved != own:
        raise UserError(
            f"{file}: the checkpoint's model was trained with a dictionary of {saved} symbols, the data's has {own}; "
            "give data prepared with the same dictionary (fairseq-preprocess --srcdict, --tgtdict), or another "
            "--save-dir for a new model"
        )


class DecodesLogProbs:
    """Base of fairseq decoders: with an adaptive softmax, decoding returns log-probabilities in the place of features.

    fairseq's generator divides what a decoder returns by the temperature before the softmax. Features divided by it
    would change head and tail clusters each in its own way.
    """

    def output(self, features: Tensor, extra: dict[str, Any], incremental_state: dict | None, only: bool) -> Output:
        """A decoder's output.

        Args:
            features: [B, T, D].
            incremental_state: None in training and scoring, where criterions need features.
            only: return features in any case.
        """
        if only:
            return features, extra
        if incremental_state is None or self.adaptive_softmax is None:
            return self.output_layer(features), extra
        return self.adaptive_softmax.get_log_prob(features, None), {**extra, LOG_PROBS: True}

    def get_normalized_probs(self, net_output: Output, log_probs: bool, sample: dict | None = None) -> Tensor:
        """Probabilities or their logarithms [B, T, V]; of log-probabilities divided by a temperature T, p^(1/T)."""
        if net_output[1] and net_output[1].get(LOG_PROBS):
            return (torch.log_softmax if log_probs else torch.softmax)(net_output[0].float(), -1)
        return super().get_normalized_probs(net_output, log_probs, sample)
