"""The language models as transformers' ``PreTrainedModel``. Parameters have the names of the fairseq models."""

from dataclasses import replace
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.transformers.cache import StreamCache
from fb_fairseq.transformers.configuration import (
    AllAttentionConfig,
    FeedbackTransformerConfig,
    LanguageModelConfig,
    RelativeTransformerConfig,
    StreamingLSTMConfig,
)
from fb_fairseq.transformers.decoder import Decoder
from fb_fairseq.transformers.inputs import (
    CACHE_FIELD,
    IGNORED,
    LanguageModelOutput,
    check_arguments,
    check_labels,
    check_loaded,
)
from fb_fairseq.transformers.losses import mean_loss, without_padding
from fb_fairseq.transformers.memory_model import MemoryModel, tied_names
from fb_fairseq.transformers.trainer import adapt_trainer


class LanguageModel(MemoryModel):
    """A language model that reads texts of any length, with a memory of constant size.

    ``model(input_ids, past_key_values=cache)`` continues the streams of a ``StreamCache``. Models predict the first
    token of a text from ``</s>``, which tokenizers put before it.
    """

    config_class = LanguageModelConfig
    base_model_prefix = "decoder"
    _no_split_modules = ["Decoder"]
    gives_labels = False  # whether it predicts the label of each token

    def __init__(self, config: LanguageModelConfig):
        super().__init__(config)
        if bool(config.labels) != self.gives_labels:
            what, auto = ("labels", "TokenClassification") if config.labels else ("the next token", "CausalLM")
            raise UserError(f"{type(self).__name__}: the model predicts {what}; use AutoModelFor{auto}")
        self.decoder = Decoder(config)
        self._tied_weights_keys = tied_names(self)
        self.post_init()

    @property
    def accepts_loss_kwargs(self) -> bool:
        """Whether ``forward`` takes ``num_items_in_batch``. ``Trainer`` asks when it is made, before it counts or
        computes losses: a chance to adapt it without importing it for those who do not train.
        """
        adapt_trainer()
        return True

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
    def generate(
        self, inputs: Tensor | None = None, generation_config: Any = None, *arguments: Any, **options: Any
    ) -> Any:
        """See ``GenerationMixin.generate``.

        With a memory that was kept from another call, the input is the whole text, as in transformers, or the tokens
        after those that the memory holds; then so is the result.
        """
        if self.gives_labels:
            raise UserError("generate: the model predicts labels of tokens, not the next token; call the model")
        cache = options.get("past_key_values", options.get("cache"))
        tokens = options.get("input_ids") if inputs is None else inputs
        if isinstance(cache, StreamCache) and cache.position and torch.is_tensor(tokens):
            cache.begin_generation(tokens)
            mask = options.get("attention_mask")
            if mask is not None and cache.get_seq_length() == 0:  # (it may be that of all tokens)
                options["attention_mask"] = mask[:, -tokens.shape[1] :]
            config = generation_config or self.generation_config
            names = ("num_beams", "num_return_sequences")
            rows = max(options.get(name) or getattr(config, name, None) or 1 for name in names)
            if rows > 1:
                cache.batch_repeat_interleave(rows)
        return super().generate(inputs, generation_config, *arguments, **options)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: StreamCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: int | Tensor | None = None,
        return_dict: bool | None = None,
        position_ids: Tensor | None = None,
        cache: StreamCache | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        inputs_embeds: Tensor | None = None,
        **others,
    ) -> LanguageModelOutput | tuple:
        """Predict the next token at each position. Names and order of the arguments are transformers'.

        Args:
            input_ids: tokens [B, T].
            attention_mask: [B, T], or [B, past and T]; 0 for padding, which takes no place in the memory.
            past_key_values: the streams' memory, which is updated.
            labels: the tokens themselves [B, T], for the loss; ``-100`` for those that do not count. They are shifted
                here: the label of a position is the token after it. Padding neither predicts nor is predicted. Of a
                model with ``gives_labels``: the labels of these tokens, which are not shifted.
            use_cache: return a memory that continues these texts. If it is not given, texts may be padded at the end;
                their memory cannot be used then.
            logits_to_keep: compute the logits of the last positions only; 0: of all.
            num_items_in_batch: number of targets of all batches that make an update, by which the loss is divided; see
                ``adapt_trainer``. None: the loss is divided by the number of targets of this batch.
            return_dict: False: return a tuple; None: as the configuration says.
            position_ids: the position of each token in its text [B, T] or [1, T], padding not counted. Needed where
                several texts are packed into a row: each begins at position 0, and sees nothing of the others.
                Elsewhere ``past_key_values`` knows it: given by ``generate``, and compared.
            cache: the new name of ``past_key_values`` (from 5.24).
            output_hidden_states: return ``hidden_states``: L + 1 times [B, T, D], the embeddings, each layer's output,
                and in the place of the last one the features behind the final norm. The reference loop computes them.
            output_attentions: return ``attentions``: L times [B, H, T, C + T], without dropout and gradient; columns
                are the C tokens that the memory holds (at most the attention span) and these. No token attends to
                itself. Not with padding or packed texts, nor token by token.
            inputs_embeds: vectors in the place of the tokens' [B, T, D], before they are scaled; ``input_ids`` do not
                matter then.
            others: ``shift_labels``, labels that are shifted already, [B, T]: the token after each position, where
                ``labels`` would not have that of the last one; ``label_smoothing``, 0 to 1: the share of the loss that
                is the mean over all tokens of the vocabulary. (By name, ``Trainer`` would take them for labels that
                every batch must have.)

        Returns:
            ``loss`` (nats per token; in training plus the adaptive spans' penalty), ``logits`` [B, T, V] and
            ``past_key_values``. With an adaptive softmax, logits are log-probabilities, and in training with labels
            there are none, because they are large.
        """
        shift_labels = others.pop("shift_labels", None)
        smoothing = others.pop("label_smoothing", 0.0)
        check_arguments(others)
        check_loaded(self.decoder)
        seen = self.decoder(
            input_ids,
            attention_mask,
            past_key_values,
            use_cache,
            position_ids,
            cache=cache,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
            inputs_embeds=inputs_embeds,
            penalty_counts=labels is not None or shift_labels is not None,
        )
        features_BTD = seen.last_hidden_state
        loss = None
        targets_BT = shift_labels
        shifted_here = shift_labels is None and not self.gives_labels
        if labels is not None and targets_BT is None:
            targets_BT = F.pad(labels[:, 1:], (0, 1), value=IGNORED) if shifted_here else labels
        if self.gives_labels:
            check_labels(targets_BT, shift_labels)
        if targets_BT is not None:
            targets_BT = without_padding(targets_BT, attention_mask, shifted_here)
            loss = mean_loss(
                self.decoder,
                features_BTD,
                targets_BT,
                number=num_items_in_batch,
                penalty=self.decoder.stack.report().penalty if self.training else None,
                smoothing=smoothing,
            )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        adaptive_training = self.training and loss is not None and self.decoder.adaptive_softmax is not None
        logits = None if adaptive_training else self.decoder.logits(features_BTD[:, kept])
        output = LanguageModelOutput(
            loss=loss,
            logits=logits,
            hidden_states=seen.hidden_states,
            attentions=seen.attentions,
            **{CACHE_FIELD: seen.cache},
        )
        as_dict = self.config.return_dict if return_dict is None else return_dict
        return output if as_dict else output.to_tuple()


class FeedbackTransformerForCausalLM(LanguageModel):
    """The Feedback Transformer (arXiv 2002.09402)."""

    config_class = FeedbackTransformerConfig


class FeedbackTransformerForTokenClassification(FeedbackTransformerForCausalLM):
    """A Feedback Transformer that predicts a label of each token, which has the name of a token."""

    gives_labels = True


class RelativeTransformerForCausalLM(LanguageModel):
    """The papers' Transformer, with carried memory."""

    config_class = RelativeTransformerConfig


class AllAttentionForCausalLM(LanguageModel):
    """The all-attention network (arXiv 1907.01470)."""

    config_class = AllAttentionConfig


class StreamingLSTMForCausalLM(LanguageModel):
    """The LSTM that the papers compare with."""

    config_class = StreamingLSTMConfig


MODELS = {
    model.config_class.model_type: model
    for model in (
        FeedbackTransformerForCausalLM,
        RelativeTransformerForCausalLM,
        AllAttentionForCausalLM,
        StreamingLSTMForCausalLM,
    )
}
