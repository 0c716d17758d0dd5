"""Arguments and results of a call: checks that the arguments fit the model and its memory, and the outputs.

transformers' own models ignore arguments that they do not know. That is dangerous here: releases rename arguments
(``past_key_values`` became ``cache`` in 5.24), and a model that misses its memory goes on with other text. So unknown
arguments are errors, and whatever says where the tokens stand is compared with the memory.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
import transformers
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast, Seq2SeqLMOutput

from fb_fairseq.errors import UserError
from fb_fairseq.transformers.cache import MemoryCache

# The field of a model's output that holds its memory, and so the argument as which ``generate`` gives it back.
CACHE_FIELD = "cache" if "cache" in [f.name for f in fields(CausalLMOutputWithPast)] else "past_key_values"

Kind = TypeVar("Kind", bound=MemoryCache)


class BothNames:
    """An output whose memory has its old and its new name in all releases, without a warning."""

    if CACHE_FIELD == "cache":

        @property
        def past_key_values(self) -> MemoryCache | None:
            """The memory, by its old name."""
            return self.__dict__[CACHE_FIELD]

    else:

        @property
        def cache(self) -> MemoryCache | None:
            """The memory, by its new name."""
            return self.__dict__[CACHE_FIELD]


@dataclass
class LanguageModelOutput(BothNames, CausalLMOutputWithPast):
    """Results of a language model."""


@dataclass
class DecoderOutput(BothNames, BaseModelOutputWithPast):
    """Results of a language model without its output layer."""


@dataclass
class TranslationOutput(BothNames, Seq2SeqLMOutput):
    """Results of a translation model."""


def given_cache(kind: type, past_key_values: Kind | None, cache: Kind | None) -> Kind | None:
    """The memory that a call gives, by either name.

    Args:
        kind: class of the model's memory.
    """
    if past_key_values is not None and cache is not None:
        raise UserError("cache: the same as past_key_values; give one of them")
    found = cache if past_key_values is None else past_key_values
    if found is not None and not isinstance(found, kind):
        raise UserError(f"past_key_values: a {type(found).__name__}; give the {kind.__name__} that the model returned")
    return found


def check_arguments(others: dict[str, Any]) -> None:
    """Check that no argument is ignored.

    Args:
        others: the arguments of a call that the model does not know.
    """
    for name, value in others.items():
        if value is not None and value is not False:
            raise UserError(
                f"{name}: not an argument of this model; leave it out (if transformers passes it by itself, its release"
                f" {transformers.__version__} is not supported: install one that the setup.py of fb_fairseq allows)"
            )


def check_mask(name: str, mask_BT: Tensor | None, tokens: int, past: int) -> None:
    """Check the length of a mask.

    Args:
        name: the argument.
        mask_BT: of the new tokens, or of the past and the new tokens.
        tokens: number of new tokens, T.
        past: number of tokens in the memory.
    """
    if mask_BT is not None and (mask_BT.dim() != 2 or mask_BT.shape[1] not in (tokens, past + tokens)):
        shape = "x".join(map(str, mask_BT.shape))
        raise UserError(
            f"{name}: of shape {shape} for {tokens} new tokens after {past} in past_key_values; give the memory that"
            " the model returned for the tokens before, and the mask of all tokens or of the new ones"
        )


def check_positions(
    name: str, position_ids: Tensor | None, expected_BT: Tensor, past: int, kept_BT: Tensor | None
) -> None:
    """Check the positions of the new tokens.

    Args:
        name: the argument.
        position_ids: what the call says, [B, T], [1, T] or [T].
        expected_BT: what continues the memory, [B, T] or [1, T].
        past: number of tokens in the memory.
        kept_BT: 0 where a token is padding, whose position does not matter.
    """
    if position_ids is None:
        return
    same = position_ids.shape[-1] == expected_BT.shape[1] and position_ids.dim() <= 2
    if same:
        differs_BT = position_ids.to(expected_BT.device) != expected_BT
        same = not bool((differs_BT if kept_BT is None else differs_BT & kept_BT.bool()).any())
    if not same:
        raise UserError(
            f"{name}: not those of tokens that follow the {past} in past_key_values; give the memory that the model"
            " returned for the tokens before, and only the tokens after them (one text in each row, from position 0)"
        )


def steps(start: int, number: int, device: torch.device) -> Tensor:
    """Positions [1, T] of the tokens after the first ``start``."""
    return torch.arange(start, start + number, device=device)[None]
