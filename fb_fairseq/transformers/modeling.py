"""The language models as transformers' ``PreTrainedModel``. Parameters have the names of the fairseq models.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import os
from contextlib import nullcontext
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
from fb_fairseq.ops.fallbacks import log_once
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
from fb_fairseq.transformers.continuation import stand_ins
from fb_fairseq.transformers.inputs import (
    CACHE_FIELD,
    LanguageModelOutput,
    check_arguments,
    check_mask,
    check_positions,
    given_cache,
    steps,
)
from fb_fairseq.transformers.padding import (
    IGNORED,
    Padding,
    number_of_targets,
    packed_positions,
    trainer_counts_first_labels,
    without_padding,
)
from fb_fairseq.transformers.stream_memory import StreamHandle
from fb_fairseq.transformers.watching import WatchedAttention


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

    def embed(self, vectors_BTD: Tensor, start: int, positions_TB: Optional[Tensor]) -> Tensor:
        """Embeddings [B, T, D] of tokens.

        Args:
            vectors_BTD: those of ``embed_tokens``.
            start: position of the first token.
            positions_TB: the positions, where they differ between texts.
        """
        x_BTD = vectors_BTD * self.embed_scale
        if self.absolute_positions:
            if positions_TB is None:
                x_BTD = x_BTD + sinusoidal_positions(start, x_BTD.shape[1], x_BTD[0, 0])
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

    @torch.no_grad()
    def generate(self, inputs: Optional[Tensor] = None, *arguments: Any, **options: Any) -> Any:
        """See ``GenerationMixin.generate``.

        With a memory that was kept from another call, the input is either the whole text, as in transformers, or the
        tokens after those that the memory holds; then so is the result.
        """
        inputs, past = stand_ins(inputs, options, self.generation_config)
        result = super().generate(inputs, *arguments, **options)
        if not past:
            return result
        if torch.is_tensor(result):
            return result[:, past:]
        result.sequences = result.sequences[:, past:]
        return result

    def forward(
        self,
        input_ids: Optional[Tensor] = None,
        attention_mask: Optional[Tensor] = None,
        past_key_values: Optional[StreamCache] = None,
        labels: Optional[Tensor] = None,
        use_cache: Optional[bool] = None,
        logits_to_keep: Union[int, Tensor] = 0,
        num_items_in_batch: Optional[Union[int, Tensor]] = None,
        return_dict: Optional[bool] = None,
        position_ids: Optional[Tensor] = None,
        cache_position: Optional[Tensor] = None,
        cache: Optional[StreamCache] = None,
        output_hidden_states: Optional[bool] = None,
        output_attentions: Optional[bool] = None,
        inputs_embeds: Optional[Tensor] = None,
        **others,
    ) -> Union[LanguageModelOutput, Tuple]:
        """Predict the next token at each position.

        Args:
            input_ids: tokens [B, T].
            attention_mask: [B, T], or [B, past and T]; 0 for padding, which takes no place in the memory.
            past_key_values: the streams' memory, which is updated.
            labels: the tokens themselves [B, T], for the loss; ``-100`` for those that do not count. They are shifted
                here: the label of a position is the token after it. Padding neither predicts nor is predicted.
            use_cache: return a memory that continues these texts. If it is not given, texts may be padded at the end;
                their memory cannot be used then.
            logits_to_keep: compute the logits of the last positions only; 0: of all.
            num_items_in_batch: number of labels of all batches that make an update, as ``Trainer`` counts them; the
                loss is divided by that of targets, see ``number_of_targets``. None: by the targets of this batch.
            position_ids: the position of each token in its text [B, T] or [1, T], padding not counted. Needed where
                several texts are packed into a row: each begins at position 0, and sees nothing of the others.
                Elsewhere ``past_key_values`` knows it: given by ``generate``, and compared.
            cache_position: [T], padding counted; as above. (Releases before 5.2.)
            cache: the new name of ``past_key_values`` (from 5.24).
            output_hidden_states: return ``hidden_states``: L + 1 times [B, T, D], the embeddings, each layer's output,
                and in the place of the last one the features behind the final norm. The reference loop computes them.
            output_attentions: return ``attentions``: L times [B, H, T, C + T], without dropout and gradient; columns
                are the C tokens that the memory holds (at most the attention span) and these. No token attends to
                itself. Not with padding or packed texts, nor token by token.
            inputs_embeds: vectors in the place of the tokens' [B, T, D], before they are scaled; ``input_ids`` do not
                matter then.
            others: ``shift_labels``, labels that are shifted already, [B, T]: the token after each position, where
                ``labels`` would not have that of the last one. (By name, ``Trainer`` would take it for a label that
                every batch must have.)

        Returns:
            ``loss`` (nats per token; in training plus the adaptive spans' penalty), ``logits`` [B, T, V] and
            ``past_key_values``. With an adaptive softmax, logits are log-probabilities, and in training with labels
            there are none, because they are large.

        Raises:
            UserError: padding is not at the beginning of texts that go on, the tokens do not continue the memory, an
                argument is unknown, or what is asked for cannot be returned.
        """
        shift_labels = others.pop("shift_labels", None)
        check_arguments(others)
        if input_ids is None and inputs_embeds is None:
            raise UserError("input_ids: missing; give tokens, or inputs_embeds")
        check_loaded(self.decoder)
        vectors_BTD = self.decoder.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if isinstance(past_key_values, StreamHandle):
            past_key_values = past_key_values.open(len(vectors_BTD), self.training)
        cache = given_cache(StreamCache, past_key_values, cache)
        past, may_end = 0 if cache is None else cache.position, cache is None and use_cache is None
        T, device = vectors_BTD.shape[1], vectors_BTD.device
        check_mask("attention_mask", attention_mask, T, past)
        remembers = self.config.use_cache if use_cache is None else use_cache
        if cache is None and remembers and not (self.training and torch.is_grad_enabled()):
            cache = StreamCache(self.config.memory_storage)
        check_positions("cache_position", cache_position, steps(past, T, device), past, None)
        if cache is not None:
            cache.note(None if inputs_embeds is not None else input_ids)
        hidden_states: Optional[Tuple[Tensor, ...]] = None
        if output_hidden_states is None:
            output_hidden_states = getattr(self.config, "output_hidden_states", False)
        if output_attentions is None:
            output_attentions = getattr(self.config, "output_attentions", False)
        attend = WatchedAttention(self.decoder.stack, cache) if output_attentions else None
        with self.decoder.stack.watching() if output_hidden_states else nullcontext() as watched:
            features_BTD = self._features(vectors_BTD, attention_mask, position_ids, cache, may_end, attend)
        if watched:
            hidden_states = tuple(torch.cat(parts).transpose(0, 1) for parts in zip(*watched))
        loss, targets_BT = None, shift_labels
        if targets_BT is None and labels is not None:
            targets_BT = F.pad(labels[:, 1:], (0, 1), value=IGNORED)
        penalty = self.decoder.stack.report().penalty if self.training else None
        if targets_BT is not None:
            counted_BT, number = without_padding(targets_BT, attention_mask, shift_labels is None), num_items_in_batch
            if number is not None:
                first = shift_labels is None and trainer_counts_first_labels()
                number = number_of_targets(number, counted_BT, labels if first else targets_BT)
            loss = self.decoder.loss(features_BTD, counted_BT, number, penalty)
        elif penalty is not None and torch.is_grad_enabled():
            log_once("adaptive spans: the loss is computed outside of the model, and so without their penalty")
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        adaptive_training = self.training and loss is not None and self.decoder.adaptive_softmax is not None
        logits = None if adaptive_training else self.decoder.logits(features_BTD[:, kept])
        output = LanguageModelOutput(
            loss=loss,
            logits=logits,
            hidden_states=hidden_states,
            attentions=None if attend is None else attend.found,
            **{CACHE_FIELD: cache},
        )
        return output if return_dict in (None, True) else output.to_tuple()

    def _features(
        self,
        vectors_BTD: Tensor,
        mask: Optional[Tensor],
        position_ids: Optional[Tensor],
        cache: Optional[StreamCache],
        may_end: bool,
        watch: Optional[WatchedAttention],
    ) -> Tensor:
        """Features [B, T, D] of the new tokens; the cache is updated.

        Args:
            may_end: whether padding at the end is allowed, after which the cache cannot be used.
            watch: gets the embeddings, to compute attention.
        """
        B, T = vectors_BTD.shape[:2]
        if cache is not None and cache.ended:
            raise UserError("past_key_values: its texts were padded at the end; pad at the beginning to continue them")
        start, age_B = (0, None) if cache is None else (cache.position, cache.age_B)
        positions_TB = None  # and so how many steps back each token may look
        if T == 1 and start:  # a step of generation, which is not padding: no waiting for the device
            positions_TB = None if age_B is None else age_B[None]
        elif age_B is not None or (mask is not None and not bool(mask[:, -T:].all())):
            kept_BT = torch.ones(B, T, device=vectors_BTD.device) if mask is None else mask[:, -T:]
            padding = Padding(kept_BT, age_B, start > 0)
            if padding.right and cache is not None and not (self.training and torch.is_grad_enabled()):
                if not may_end:
                    raise UserError(
                        "attention_mask: has padding at the end; pad at the beginning (padding_side='left')"
                    )
                cache.ended = True
            positions_TB = padding.positions_TB()
        elif not start and position_ids is not None:
            positions_TB = packed_positions(position_ids, B, T)
        expected_BT = steps(start, T, vectors_BTD.device) if positions_TB is None else positions_TB.t()
        check_positions("position_ids", position_ids, expected_BT, start, None if mask is None else mask[:, -T:])
        x_BTD = self.decoder.embed(vectors_BTD, start, positions_TB)
        if watch is not None:
            watch.look(x_BTD, positions_TB)
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
