"""The path from a language model's tokens to its logits: embeddings, layers with memory, output layer."""

from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.modules.adaptive_losses import adaptive_losses
from fb_fairseq.modules.interface import Stack
from fb_fairseq.modules.language_model import STACKS, OutputLayer, TextModel
from fb_fairseq.modules.words import WordOptions, build_word_layers
from fb_fairseq.ops.attention import by_slot
from fb_fairseq.ops.log import log_once
from fb_fairseq.transformers.cache import StreamCache
from fb_fairseq.transformers.configuration import PAD, LanguageModelConfig
from fb_fairseq.transformers.inputs import (
    CACHE_FIELD,
    IGNORED,
    DecoderOutput,
    check_arguments,
    check_mask,
    check_positions,
    given_cache,
    packed_positions,
    padded_positions,
)
from fb_fairseq.transformers.streams import StreamKey

WITHOUT_PENALTY = "adaptive spans: the loss is computed outside of the model, and so without their penalty"


def mean_loss(
    decoder: OutputLayer,
    features_BTD: Tensor,
    targets_BT: Tensor,
    number: float | Tensor | None,
    penalty: Tensor | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """Mean loss in nats per token.

    Args:
        targets_BT: ``IGNORED`` where none counts.
        number: number of targets to divide by; None: of those that count.
        penalty: to be added for each target.
        smoothing: the share of the mean over all tokens of the vocabulary.
    """
    counted_BT = targets_BT != IGNORED
    targets_BT = targets_BT.to(features_BTD.device).masked_fill(~counted_BT, 0)
    if decoder.adaptive_softmax is not None and not smoothing:
        total = adaptive_losses(decoder.adaptive_softmax, features_BTD, targets_BT, counted_BT, True)[0].sum()
    else:
        logits = decoder.logits(features_BTD).flatten(0, 1).float()
        losses = F.cross_entropy(logits, targets_BT.flatten(), reduction="none", label_smoothing=smoothing)
        total = (losses * counted_BT.flatten()).sum()
    if penalty is not None:
        total = total + counted_BT.sum() * penalty
    return total / (counted_BT.sum().clamp(min=1) if number is None else number)


def attention(
    stack: Stack, cache: StreamCache | None, x_BTD: Tensor, positions_TB: Tensor | None
) -> tuple[Tensor, ...]:
    """The attention of a block of embeddings: each layer's weights [B, H, T, C + T]; see ``LanguageModel.forward``."""
    if not hasattr(stack, "memory_attention"):
        raise UserError(f"output_attentions: {type(stack).__name__} has no attention; leave it out")
    if positions_TB is not None or cache is not None and cache.decoding:
        raise UserError(
            "output_attentions: not token by token, nor with padding or packed texts; give whole texts of one length"
        )
    state = None if cache is None else cache.state
    weights_LBHTS, _ = stack.memory_attention(x_BTD.transpose(0, 1), state)
    carried = 0 if state is None else state.memory_KCBD.shape[1]
    slots = carried + x_BTD.shape[1] - 1  # none attends to the last token
    return tuple(F.pad(by_slot(x_BHTS.flip(-1), slots), (0, 1)) for x_BHTS in weights_LBHTS)


class Decoder(TextModel):
    """Embedding, a stack of layers, and the output layer; as ``fb_fairseq.models.language_model``'s."""

    def __init__(self, config: LanguageModelConfig):
        super().__init__()
        self.config = config
        words = config.options_of(WordOptions)
        self.memory_storage = config.memory_storage
        self.absolute_positions = getattr(config, "relative_positions", "") == "none"
        kind, options = STACKS[config.model_type]
        self.add(
            kind(config.options_of(options)), build_word_layers(words, config.decoder_embed_dim, config.vocab_size, PAD)
        )

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: StreamCache | None = None,
        use_cache: bool | None = None,
        position_ids: Tensor | None = None,
        cache: StreamCache | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        inputs_embeds: Tensor | None = None,
        penalty_counts: bool = False,
        **others,
    ) -> DecoderOutput:
        """The features of each position, for an output layer of another kind: this is the model's ``base_model``.

        Args:
            penalty_counts: whether the caller adds the adaptive spans' penalty to the loss.

        The other arguments, and errors: see ``LanguageModel.forward``.

        Returns:
            ``last_hidden_state`` [B, T, D], behind the final norm, and ``past_key_values``.
        """
        check_arguments(others)
        if input_ids is None and inputs_embeds is None:
            raise UserError("input_ids: missing; give tokens, or inputs_embeds")
        vectors_BTD = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        block = None
        if isinstance(past_key_values, StreamKey):
            block = past_key_values.open(len(vectors_BTD), self.training)
            past_key_values = StreamCache(None, block.read(), block.offset)
        cache = given_cache(StreamCache, past_key_values, cache)
        past = 0 if cache is None else cache.get_seq_length()
        may_end = cache is None and use_cache is None
        T = vectors_BTD.shape[1]
        check_mask("attention_mask", attention_mask, T, past)
        remembers = self.config.use_cache if use_cache is None else use_cache
        if cache is None and remembers and not (self.training and torch.is_grad_enabled()):
            cache = StreamCache(self.config.memory_storage)
        if cache is not None:
            cache.note(None if inputs_embeds is not None else input_ids)
        hidden_states: tuple[Tensor, ...] | None = None
        if output_hidden_states is None:
            output_hidden_states = getattr(self.config, "output_hidden_states", False)
        if output_attentions is None:
            output_attentions = getattr(self.config, "output_attentions", False)
        x_BTD, positions_TB = self._embed(vectors_BTD, attention_mask, position_ids, cache, may_end)
        attentions = attention(self.stack, cache, x_BTD, positions_TB) if output_attentions else None
        with self.stack.watching() if output_hidden_states else nullcontext() as watched:
            if cache is None:
                y_TBD, _ = self.stack.run_block(x_BTD.transpose(0, 1), None, positions_TB)
                features_BTD = y_TBD.transpose(0, 1)
            else:
                features_BTD = cache.run(self.stack, x_BTD, positions_TB)
        if block is not None:
            block.write(cache.state, T)
        if watched:
            hidden_states = tuple(torch.cat(parts).transpose(0, 1) for parts in zip(*watched))
        if not penalty_counts and self.training and torch.is_grad_enabled() and self.stack.report().penalty is not None:
            log_once(WITHOUT_PENALTY)
        return DecoderOutput(
            last_hidden_state=features_BTD,
            hidden_states=hidden_states,
            attentions=attentions,
            **{CACHE_FIELD: cache},
        )

    def _embed(
        self,
        vectors_BTD: Tensor,
        mask: Tensor | None,
        position_ids: Tensor | None,
        cache: StreamCache | None,
        may_end: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Embeddings [B, T, D] of the new tokens; and, where they differ between texts, their positions [T, B], and so
        how many steps back each token may look.

        ``may_end``: whether padding at the end is allowed, after which the cache cannot be used.
        """
        B, T = vectors_BTD.shape[:2]
        if cache is not None and cache.ended:
            raise UserError("past_key_values: its texts were padded at the end; pad at the beginning to continue them")
        start, age_B = (0, None) if cache is None else (cache.position, cache.age_B)
        positions_TB = None
        if T == 1 and start:  # a step of generation, which is not padding: no waiting for the device
            positions_TB = None if age_B is None else age_B[None]
        elif age_B is not None or (mask is not None and not bool(mask[:, -T:].all())):
            kept_BT = torch.ones(B, T, device=vectors_BTD.device) if mask is None else mask[:, -T:]
            positions_TB, ended = padded_positions(kept_BT, age_B, start > 0)
            if ended and cache is not None and not (self.training and torch.is_grad_enabled()):
                if not may_end:
                    raise UserError("attention_mask: has padding at the end; pad on the left (padding_side='left')")
                cache.ended = True
        elif not start and position_ids is not None:
            positions_TB = packed_positions(position_ids, B, T)
        if position_ids is not None and (cache is None or not cache.start):  # (of the memory's whole text)
            steps_1T = torch.arange(start, start + T, device=vectors_BTD.device)[None]
            expected_BT = steps_1T if positions_TB is None else positions_TB.t()
            check_positions(position_ids, expected_BT, start, None if mask is None else mask[:, -T:])
        positions = start if positions_TB is None else positions_TB.t()
        return self.embed_vectors(vectors_BTD, positions), positions_TB


def check_loaded(part: nn.Module) -> None:
    """Check that a part of a model is in memory."""
    if next(part.parameters()).is_meta:
        raise UserError("device_map: parameters on disk are not supported; give another map, or max_memory")
