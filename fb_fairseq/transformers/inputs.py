"""Arguments and results of a call: checks that the arguments fit the model and its memory, and the outputs.

transformers' own models ignore arguments that they do not know. That is dangerous here: releases rename arguments
(``past_key_values`` became ``cache`` in 5.24), and a model that misses its memory goes on with other text. So unknown
arguments are errors, and whatever says where the tokens stand is compared with the memory.
"""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
import torch.nn as nn
import transformers
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast, Seq2SeqLMOutput

from fb_fairseq.errors import UserError
from fb_fairseq.symbols import EOS, PAD, UNK
from fb_fairseq.transformers.cache import MemoryCache

# The field of a model's output that holds its memory, and so the argument as which ``generate`` gives it back.
CACHE_FIELD = "cache" if "cache" in [f.name for f in fields(CausalLMOutputWithPast)] else "past_key_values"
OTHER_NAME = "past_key_values" if CACHE_FIELD == "cache" else "cache"

CacheType = TypeVar("CacheType", bound=MemoryCache)
IGNORED = -100  # label of a token that does not count, as everywhere in transformers


class BothNames:
    """An output whose memory has its old and its new name in all releases, without a warning."""


# (Here, because what the name is depends on the release of transformers.)
setattr(BothNames, OTHER_NAME, property(lambda output: output.__dict__[CACHE_FIELD]))


@dataclass
class LanguageModelOutput(BothNames, CausalLMOutputWithPast):
    """Results of a language model."""


@dataclass
class DecoderOutput(BothNames, BaseModelOutputWithPast):
    """Results of a language model without its output layer."""


@dataclass
class TranslationOutput(BothNames, Seq2SeqLMOutput):
    """Results of a translation model."""


def given_cache(kind: type, past_key_values: CacheType | None, cache: CacheType | None) -> CacheType | None:
    """The memory that a call gives, by either name. ``kind``: class of the model's memory."""
    if past_key_values is not None and cache is not None:
        raise UserError("cache: the same as past_key_values; give one of them")
    found = cache if past_key_values is None else past_key_values
    if found is not None and not isinstance(found, kind):
        raise UserError(f"past_key_values: a {type(found).__name__}; give the {kind.__name__} that the model returned")
    return found


def check_arguments(others: dict[str, Any]) -> None:
    """Check that no argument is ignored. ``others``: the arguments of a call that the model does not know."""
    for name, value in others.items():
        if value is not None and value is not False and name != "return_dict":
            raise UserError(
                f"{name}: not an argument of this model; leave it out (if transformers passes it by itself, its release"
                f" {transformers.__version__} is not supported: install one that the setup.py of fb_fairseq allows)"
            )


def check_labels(labels_BT: Tensor | None, shift_labels: Tensor | None) -> None:
    """Check the labels that a model which predicts labels of tokens is given. A program for language models would give
    the tokens themselves, among which is ``</s>``, or those that follow.
    """
    if shift_labels is not None or labels_BT is not None and bool(((labels_BT >= 0) & (labels_BT <= UNK)).any()):
        raise UserError(
            "labels: the model predicts the label of each token, and special symbols are none; give the labels of these"
            f" tokens, not shifted, and {IGNORED} at special symbols"
        )


def check_mask(name: str, mask_BT: Tensor | None, texts: int, tokens: int, past: int) -> None:
    """Check the shape of a mask.

    Args:
        name: the argument.
        mask_BT: of the new tokens, or of the past and the new tokens.
        texts: their number, B.
        tokens: number of new tokens, T.
        past: number of tokens in the memory.
    """
    if mask_BT is None:
        return
    shape = "x".join(map(str, mask_BT.shape))
    if mask_BT.dim() == 2 and len(mask_BT) != texts:
        raise UserError(f"{name}: of shape {shape} for {texts} texts; give a row for each")
    if mask_BT.dim() != 2 or mask_BT.shape[1] not in (tokens, past + tokens):
        raise UserError(
            f"{name}: of shape {shape} for {tokens} new tokens after {past} in past_key_values; give the memory that"
            " the model returned for the tokens before, and the mask of all tokens or of the new ones"
        )


def check_positions(
    position_ids: Tensor, rows: int, tokens: int, past: int, positions_TB: Tensor | None, kept_BT: Tensor | None
) -> None:
    """Check the positions of the new tokens.

    Args:
        position_ids: what the call says, [B, T], [1, T] or [T].
        rows: number of texts, B.
        tokens: number of new tokens, T.
        past: number of tokens in the memory.
        positions_TB: what continues the memory; None: the next positions, the same in all texts.
        kept_BT: 0 where a token is padding, whose position does not matter; None: there is no padding.
    """
    next_1T = torch.arange(past, past + tokens, device=position_ids.device)[None]
    expected_BT = next_1T if positions_TB is None else positions_TB.t()
    same = tuple(position_ids.shape) in ((tokens,), (1, tokens), (rows, tokens))
    if same:
        differs_BT = position_ids.to(expected_BT.device) != expected_BT
        same = not bool((differs_BT if kept_BT is None else differs_BT & kept_BT.bool()).any())
    if not same:
        raise UserError(
            f"position_ids: not those of tokens that follow the {past} in past_key_values; give the memory that the"
            " model returned for the tokens before, and only the tokens after them (one text in each row, from"
            " position 0)"
        )


def padded_positions(mask_BT: Tensor, age_B: Tensor | None, begun: bool) -> tuple[Tensor, bool]:
    """The position [T, B] of each token in its text, from 0 (that of padding is 0), and whether any text is padded at
    the end.

    Args:
        mask_BT: 0 where the T new tokens are padding.
        age_B: see ``StreamCache``.
        begun: whether the memory holds the beginning of these texts.
    """
    kept_BT = mask_BT.bool()
    tokens_B = kept_BT.sum(1)
    T = kept_BT.shape[1]
    left_B = torch.where(tokens_B > 0, kept_BT.int().argmax(1), T)  # number of padding tokens at the beginning
    steps_T = torch.arange(T, device=mask_BT.device)
    between_BT = (steps_T >= left_B[:, None]) & (steps_T < (left_B + tokens_B)[:, None])
    if not kept_BT.equal(between_BT):
        raise UserError("attention_mask: has padding between tokens; pad at the beginning (padding_side='left')")
    if begun and bool((left_B > 0).any()):
        raise UserError("attention_mask: past_key_values holds the beginning of these texts; pad only before it")
    positions_TB = (steps_T[:, None] - left_B).clamp(min=0) + (0 if age_B is None else age_B)
    return positions_TB, bool((left_B + tokens_B < T).any())


def packed_positions(position_ids: Tensor, rows: int, tokens: int) -> Tensor | None:
    """The positions [T, B] of tokens of several texts in each row; None where each row is one text, or where these are
    no positions, which ``check_positions`` finds. ``position_ids``: [B, T] or [1, T]: 0 where a text begins, and one
    more at each token after it.
    """
    if tuple(position_ids.shape) not in ((1, tokens), (rows, tokens)):
        return None
    steps_BT = position_ids[:, 1:] - position_ids[:, :-1]
    goes_on = steps_BT == 1
    begins = position_ids[:, 1:] == 0
    packed = (position_ids[:, 0] == 0).all() & (goes_on | begins).all() & begins.any()
    return position_ids.expand(rows, -1).t().contiguous() if bool(packed) else None


def check_targets(tokens_BT: Tensor, mask: Tensor | None, past: int) -> None:
    """Check that targets are padded at the end, if at all, and that they follow what is in the memory.

    Args:
        mask: of the new tokens, or of all.
        past: number of tokens in the memory.
    """
    B, T = tokens_BT.shape
    check_mask("decoder_attention_mask", mask, B, T, past)
    if past:
        # Only whole targets have </s> at the beginning. (A single token may be the end of one.)
        if T > 1 and bool((tokens_BT[:, 0] == EOS).all()):
            raise UserError(
                f"decoder_input_ids: begin with </s>, but past_key_values holds the first {past} tokens; give only"
                " the tokens after them"
            )
        return
    valid_BT = tokens_BT[:, :1] != PAD
    if mask is not None:  # one that is never 1 after a 0, and not 0 at the beginning
        valid_BT = torch.cat([valid_BT & mask[:, :1].bool(), mask[:, 1:] <= mask[:, :-1]], 1)
    if not bool(valid_BT.all()):
        raise UserError("decoder_input_ids: not padded at the end alone; give padding_side='right'")
    if not bool((tokens_BT[:, 0] == EOS).all()):
        raise UserError(
            "decoder_input_ids: do not begin with </s>; give whole targets, or the past_key_values that the model"
            " returned for the tokens before these"
        )


def check_loaded(part: nn.Module) -> None:
    """Check that a part of a model is in memory."""
    if next(part.parameters()).is_meta:
        raise UserError("device_map: parameters on disk are not supported; give another map, or max_memory")
