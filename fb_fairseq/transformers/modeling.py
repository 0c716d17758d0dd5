"""The language models as transformers' ``PreTrainedModel``. Parameters have the names of the fairseq models.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import os
from dataclasses import replace
from typing import Any, Optional, Tuple, Union

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from transformers import GenerationMixin, PreTrainedModel

from fb_fairseq.checksums import check_weights
from fb_fairseq.errors import UserError
from fb_fairseq.modules.adaptive_words import AdaptiveSoftmax
from fb_fairseq.modules.positions import sinusoidal_positions, sinusoids
from fb_fairseq.modules.stack_holder import StackHolder
from fb_fairseq.modules.words import WordOptions, build_word_layers
from fb_fairseq.ops.adaptive_softmax import adaptive_losses
from fb_fairseq.ops.layers import dropout
from fb_fairseq.transformers.cache import StreamCache
from fb_fairseq.transformers.configuration import (
    CONFIGS,
    PAD,
    AllAttentionConfig,
    FeedbackTransformerConfig,
    LanguageModelConfig,
    RelativeTransformerConfig,
    StreamingLSTMConfig,
)
from fb_fairseq.transformers.inputs import (
    CACHE_FIELD,
    LanguageModelOutput,
    check_arguments,
    check_mask,
    check_positions,
    given_cache,
    steps,
)

IGNORED = -100  # label of a token that does not count, as everywhere in transformers


class Padding:
    """Which tokens of a batch are padding.

    Args:
        mask_BT: 0 where the T new tokens are padding.
        age_B: see ``StreamCache``; None: the streams begin here.

    Attributes:
        left_B: number of padding tokens at the beginning.
        right: whether there is padding at an end.

    Raises:
        UserError: there is padding between tokens, or at the beginning of streams that have begun already.
    """

    def __init__(self, mask_BT: Tensor, age_B: Optional[Tensor], begun: bool):
        kept_BT = mask_BT.bool()
        tokens_B, T = kept_BT.sum(1), kept_BT.shape[1]
        self.left_B = torch.where(tokens_B > 0, kept_BT.int().argmax(1), T)
        steps_T = torch.arange(T, device=mask_BT.device)
        between = (steps_T >= self.left_B[:, None]) & (steps_T < (self.left_B + tokens_B)[:, None])
        if not kept_BT.equal(between):
            raise UserError("attention_mask: has padding between tokens; pad at the beginning (padding_side='left')")
        if begun and bool((self.left_B > 0).any()):
            raise UserError("attention_mask: past_key_values holds the beginning of these texts; pad only before it")
        self.right = bool((self.left_B + tokens_B < T).any())
        self.steps_T, self._age_B = steps_T, age_B

    def positions_TB(self) -> Tensor:
        """The position of each token in its text, from 0; that of padding is 0."""
        before_B = 0 if self._age_B is None else self._age_B
        return (self.steps_T[:, None] - self.left_B).clamp(min=0) + before_B


class OutputLayer(StackHolder):
    """Base of decoders: what is behind their layers.

    Attributes:
        adaptive_softmax: None if the output layer is plain.
        output_projection: maps features to logits; None with an adaptive softmax.
    """

    adaptive_softmax: Optional[AdaptiveSoftmax]
    output_projection: Optional[nn.Linear]

    def logits(self, features: Tensor) -> Tensor:
        """Logits; those of an adaptive softmax are log-probabilities."""
        if self.adaptive_softmax is None:
            return self.output_projection(features)
        return self.adaptive_softmax.get_log_prob(features, None)

    def loss(
        self, features_BTD: Tensor, targets_BT: Tensor, number: Optional[Union[int, Tensor]], penalty: Optional[Tensor]
    ) -> Tensor:
        """Mean loss in nats per token.

        Args:
            targets_BT: ``IGNORED`` where none counts.
            number: number of targets to divide by; None: of those that count.
            penalty: to be added for each target.
        """
        counted_BT = targets_BT != IGNORED
        targets_BT = targets_BT.to(features_BTD.device).masked_fill(~counted_BT, 0)
        if self.adaptive_softmax is not None:
            total = adaptive_losses(self.adaptive_softmax, features_BTD, targets_BT, counted_BT, True)[0].sum()
        else:
            logits = self.logits(features_BTD).flatten(0, 1).float()
            losses = F.cross_entropy(logits, targets_BT.flatten(), reduction="none")
            total = (losses * counted_BT.flatten()).sum()
        if penalty is not None:
            total = total + counted_BT.sum() * penalty
        return total / (counted_BT.sum().clamp(min=1) if number is None else number)


class Decoder(OutputLayer):
    """Embedding, a stack of layers, and the output layer; as ``fb_fairseq.models.language_model``'s."""

    def __init__(self, config: LanguageModelConfig):
        super().__init__()
        self.hold(config.stack_class(config.options_of(config.options_class)))
        words = build_word_layers(config.options_of(WordOptions), config.decoder_embed_dim, config.vocab_size, PAD)
        self.embed_tokens, self.embed_scale = words.embed_tokens, words.embed_scale
        self.adaptive_softmax, self.output_projection = words.adaptive_softmax, words.output_projection
        self.absolute_positions = getattr(config, "relative_positions", "") == "none"

    def embed(self, tokens_BT: Tensor, start: int, positions_TB: Optional[Tensor]) -> Tensor:
        """Embeddings [B, T, D].

        Args:
            start: position of the first token.
            positions_TB: the positions, where they differ between texts.
        """
        x_BTD = self.embed_tokens(tokens_BT) * self.embed_scale
        if self.absolute_positions:
            if positions_TB is None:
                x_BTD = x_BTD + sinusoidal_positions(start, tokens_BT.shape[1], x_BTD[0, 0])
            else:
                x_BTD = x_BTD + sinusoids(positions_TB.t(), x_BTD[0, 0])
        return dropout(x_BTD, self.stack.draw(self.stack.options.embedding_dropout, x_BTD.shape, x_BTD))


class MemoryModel(PreTrainedModel, GenerationMixin):
    """Base of the models: what all of them tell transformers.

    Attributes:
        decoder: embeddings, a stack of layers with memory, and the output layer.
    """

    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    gradient_checkpointing = False
    _is_stateful = True  # refuses assisted decoding, which would have to forget steps
    decoder: OutputLayer

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """As in transformers, but weights in a local folder are compared with the checksum that an export has.

        Raises:
            UserError: they are damaged.
        """
        if os.path.isdir(pretrained_model_name_or_path or ""):
            check_weights(os.path.join(pretrained_model_name_or_path, kwargs.get("subfolder") or ""))
        return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)

    def _init_weights(self, module: nn.Module) -> None:
        """Modules have initialised their parameters themselves, as the papers do."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # ``forward`` makes the cache

    def get_output_embeddings(self) -> Optional[nn.Module]:
        """The output layer; None with an adaptive softmax."""
        return self.decoder.output_projection

    def resize_token_embeddings(self, *_, **__) -> None:
        """Not possible: the dictionary is that of the training data.

        Raises:
            UserError: always; nothing is changed.
        """
        raise UserError("resize_token_embeddings: the vocabulary is that of the training data, and cannot be changed")


class LanguageModel(MemoryModel):
    """A language model that reads texts of any length, with a memory of constant size.

    ``model(input_ids, past_key_values=cache)`` continues the streams of a ``StreamCache``. Models predict the first
    token of a text from ``</s>``, which tokenizers put before it.
    """

    config_class = LanguageModelConfig
    base_model_prefix = "decoder"
    _no_split_modules = ["Decoder"]

    def __init__(self, config: LanguageModelConfig):
        super().__init__(config)
        self.decoder = Decoder(config)
        self._tied_weights_keys = tied_names(self)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The embedding."""
        return self.decoder.embed_tokens

    def _set_gradient_checkpointing(self, enable: bool = True, gradient_checkpointing_func: Any = None, **_) -> None:
        """Recompute activations in the backward pass, in the stack's own way."""
        stack = self.decoder.stack
        if hasattr(stack.options, "checkpoint_activations"):  # an LSTM has few
            stack.options = replace(stack.options, checkpoint_activations=enable)
        self.gradient_checkpointing = enable

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Optional[Tensor] = None,
        past_key_values: Optional[StreamCache] = None,
        labels: Optional[Tensor] = None,
        use_cache: Optional[bool] = None,
        logits_to_keep: Union[int, Tensor] = 0,
        shift_labels: Optional[Tensor] = None,
        num_items_in_batch: Optional[Union[int, Tensor]] = None,
        return_dict: Optional[bool] = None,
        position_ids: Optional[Tensor] = None,
        cache_position: Optional[Tensor] = None,
        cache: Optional[StreamCache] = None,
        **others,
    ) -> Union[LanguageModelOutput, Tuple]:
        """Predict the next token at each position.

        Args:
            input_ids: tokens [B, T].
            attention_mask: [B, T], or [B, past and T]; 0 for padding, which takes no place in the memory.
            past_key_values: the streams' memory, which is updated.
            labels: the tokens themselves [B, T], for the loss; ``-100`` for those that do not count. They are shifted
                here: the label of a position is the token after it.
            use_cache: return a memory that continues these texts. If it is not given, texts may be padded at the end;
                their memory cannot be used then.
            logits_to_keep: compute the logits of the last positions only; 0: of all.
            shift_labels: labels that are shifted already, [B, T]: the token after each position, where ``labels`` would
                not have that of the last one.
            num_items_in_batch: number of labels to divide the loss by; None: those of this batch.
            position_ids: the position of each token in its text [B, T] or [1, T], padding not counted. Not needed:
                ``past_key_values`` knows it. Given by ``generate``, and compared.
            cache_position: [T], padding counted; as above. (Releases before 5.2.)
            cache: the new name of ``past_key_values`` (from 5.24).

        Returns:
            ``loss`` (nats per token; in training plus the adaptive spans' penalty), ``logits`` [B, T, V] and
            ``past_key_values``. With an adaptive softmax, logits are log-probabilities, and in training with labels
            there are none, because they are large.

        Raises:
            UserError: padding is not at the beginning of texts that go on, the tokens do not continue the memory, or an
                argument is unknown.
        """
        check_arguments(others)
        cache = given_cache(StreamCache, past_key_values, cache)
        past, may_end = 0 if cache is None else cache.position, cache is None and use_cache is None
        check_mask("attention_mask", attention_mask, input_ids.shape[1], past)
        remembers = self.config.use_cache if use_cache is None else use_cache
        if cache is None and remembers and not (self.training and torch.is_grad_enabled()):
            cache = StreamCache(self.config.memory_storage)
        check_loaded(self.decoder)
        check_positions("cache_position", cache_position, steps(past, input_ids.shape[1], input_ids.device), past, None)
        features_BTD = self._features(input_ids, attention_mask, position_ids, cache, may_end)
        targets_BT = shift_labels
        if targets_BT is None and labels is not None:
            targets_BT = F.pad(labels[:, 1:], (0, 1), value=IGNORED)
        loss = None
        if targets_BT is not None:
            penalty = self.decoder.stack.report().penalty if self.training else None
            loss = self.decoder.loss(features_BTD, targets_BT, num_items_in_batch, penalty)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        adaptive_training = self.training and loss is not None and self.decoder.adaptive_softmax is not None
        logits = None if adaptive_training else self.decoder.logits(features_BTD[:, kept])
        output = LanguageModelOutput(loss=loss, logits=logits, **{CACHE_FIELD: cache})
        return output if return_dict in (None, True) else output.to_tuple()

    def _features(
        self,
        input_ids: Tensor,
        mask: Optional[Tensor],
        position_ids: Optional[Tensor],
        cache: Optional[StreamCache],
        may_end: bool,
    ) -> Tensor:
        """Features [B, T, D] of the new tokens; the cache is updated.

        Args:
            may_end: whether padding at the end is allowed, after which the cache cannot be used.
        """
        T = input_ids.shape[1]
        if cache is not None and cache.ended:
            raise UserError("past_key_values: its texts were padded at the end; pad at the beginning to continue them")
        start, age_B = (0, None) if cache is None else (cache.position, cache.age_B)
        positions_TB = None  # and so how many steps back each token may look
        if T == 1 and start:  # a step of generation, which is not padding: no waiting for the device
            positions_TB = None if age_B is None else age_B[None]
        elif age_B is not None or (mask is not None and not bool(mask[:, -T:].all())):
            padding = Padding(torch.ones_like(input_ids) if mask is None else mask[:, -T:], age_B, start > 0)
            if padding.right and cache is not None and not (self.training and torch.is_grad_enabled()):
                if not may_end:
                    raise UserError(
                        "attention_mask: has padding at the end; pad at the beginning (padding_side='left')"
                    )
                cache.ended = True
            positions_TB = padding.positions_TB()
        expected_BT = steps(start, T, input_ids.device) if positions_TB is None else positions_TB.t()
        check_positions("position_ids", position_ids, expected_BT, start, None if mask is None else mask[:, -T:])
        x_BTD = self.decoder.embed(input_ids, start, positions_TB)
        if cache is None:
            y_TBD, _ = self.decoder.stack.run_block(x_BTD.transpose(0, 1), None, positions_TB)
            return y_TBD.transpose(0, 1)
        features_BTD = cache.run(self.decoder.stack, x_BTD, positions_TB)
        cache.count(T, None if positions_TB is None else positions_TB[-1] + 1)
        return features_BTD


def check_loaded(part: nn.Module) -> None:
    """Check that a part of a model is in memory.

    Raises:
        UserError: ``device_map`` has put it on disk.
    """
    if next(part.parameters()).is_meta:
        raise UserError("device_map: parameters on disk are not supported; give another map, or max_memory")


def tied_names(model: nn.Module) -> dict:
    """The parameters that are the same as others, by name; the first embedding's name stands for all."""
    names: dict = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    tied = {}
    for same in names.values():
        source = next((name for name in same if ".embed_tokens." in name), same[0])
        tied.update({name: source for name in same if name != source})
    return tied


def model_class(config: type, name: str, doc: str) -> type:
    """A subclass of ``LanguageModel`` for a configuration."""
    return type(name, (LanguageModel,), {"config_class": config, "__doc__": doc, "__module__": __name__})


FeedbackTransformerForCausalLM = model_class(
    FeedbackTransformerConfig, "FeedbackTransformerForCausalLM", "The Feedback Transformer (arXiv 2002.09402)."
)
RelativeTransformerForCausalLM = model_class(
    RelativeTransformerConfig, "RelativeTransformerForCausalLM", "The papers' Transformer, with carried memory."
)
AllAttentionForCausalLM = model_class(
    AllAttentionConfig, "AllAttentionForCausalLM", "The all-attention network (arXiv 1907.01470)."
)
StreamingLSTMForCausalLM = model_class(
    StreamingLSTMConfig, "StreamingLSTMForCausalLM", "The LSTM that the papers compare with."
)
MODELS = {
    model.config_class.model_type: model
    for model in (
        FeedbackTransformerForCausalLM,
        RelativeTransformerForCausalLM,
        AllAttentionForCausalLM,
        StreamingLSTMForCausalLM,
    )
}
assert set(MODELS) == set(CONFIGS)
