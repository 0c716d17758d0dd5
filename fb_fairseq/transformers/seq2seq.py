"""The translation model as transformers' ``PreTrainedModel``. Parameters have the names of ``feedback_decoder``.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``; C counts the source's positions.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from fb_fairseq.errors import UserError
from fb_fairseq.modules.options import EncoderOptions
from fb_fairseq.ops.feedback.decoding import DecoderState
from fb_fairseq.transformers.cache import DecoderCache
from fb_fairseq.transformers.configuration import EOS, PAD, FeedbackDecoderConfig
from fb_fairseq.transformers.inputs import (
    CACHE_FIELD,
    IGNORED,
    TranslationOutput,
    check_arguments,
    check_loaded,
    check_mask,
    check_targets,
    given_cache,
)
from fb_fairseq.transformers.losses import mean_loss
from fb_fairseq.transformers.memory_model import MemoryModel, tied_names
from fb_fairseq.transformers.seq2seq_parts import Encoder, TranslationDecoder, initialise_layers, new_embedding


class FeedbackDecoderForConditionalGeneration(MemoryModel):
    """A Transformer encoder and a decoder with feedback memory (arXiv 2002.09402), for translation and summarization.

    Sources end with ``</s>``; targets begin with it, and end with it. Sources may be padded at either side, targets at
    the end.
    """

    config_class = FeedbackDecoderConfig
    _no_split_modules = ["Encoder", "TranslationDecoder"]

    def __init__(self, config: FeedbackDecoderConfig):
        super().__init__(config)
        target = new_embedding(config.vocab_size, config.decoder_embed_dim)
        source = target
        if not config.share_all_embeddings:
            source = new_embedding(config.source_vocab_size, config.encoder_embed_dim)
        self.encoder = Encoder(config.options_as(EncoderOptions), source)
        self.decoder = TranslationDecoder(config, target)
        initialise_layers(self)
        self._tied_weights_keys = tied_names(self)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The embedding of sources."""
        return self.encoder.embed_tokens

    def _set_gradient_checkpointing(self, enable: bool = True, gradient_checkpointing_func: Any = None, **_) -> None:
        """Recompute activations in the backward pass."""
        for part in (self.encoder, self.decoder.stack):
            part.options = replace(part.options, checkpoint_activations=enable)
        self.gradient_checkpointing = enable

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """The decoder's input for labels [B, T]: shifted by one, after ``</s>``."""
        tokens = labels.masked_fill(labels == IGNORED, PAD)
        return torch.cat([torch.full_like(tokens[:, :1], EOS), tokens[:, :-1]], 1)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        past_key_values: DecoderCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: int | Tensor | None = None,
        return_dict: bool | None = None,
        cache: DecoderCache | None = None,
        **others,
    ) -> TranslationOutput | tuple:
        """Predict the next token of each target.

        Args:
            input_ids: sources [B, C], each with ``</s>`` at its end.
            attention_mask: [B, C], 0 for padding; None: as the encoder was told, or for pads.
            decoder_input_ids: targets so far [B, T]: ``</s>`` first; with ``past_key_values`` the new tokens only. Can
                be left out with ``labels``.
            decoder_attention_mask: 0 for padding, which must be at the end of targets.
            encoder_outputs: what the encoder has returned for the sources.
            past_key_values: the memory of decoding, which is updated.
            labels: targets with ``</s>`` at their ends [B, T]; ``-100`` for what does not count.
            use_cache: return a memory that continues these targets, if gradients are off; by default without labels.
            num_items_in_batch: number of labels to divide the loss by; None: those of this batch.
            return_dict: False: return a tuple; None: as the configuration says.
            cache: the new name of ``past_key_values`` (from 5.24).

        Returns:
            ``loss`` (nats per token), ``logits`` [B, T, V], ``past_key_values`` and ``encoder_last_hidden_state``
            [B, C, D]. With an adaptive softmax, logits are log-probabilities, and in training with labels there are
            none, because they are large.
        """
        check_arguments(others)
        cache = given_cache(DecoderCache, past_key_values, cache)
        if encoder_outputs is None:
            if input_ids is None:
                raise UserError("input_ids: missing; give the sources, or what the encoder has returned for them")
            check_loaded(self.encoder)
            encoder_outputs = self.encoder(input_ids, attention_mask)
        check_loaded(self.decoder)
        device = self.decoder.embed_tokens.weight.device  # device_map may have put the encoder on another one
        out_CBD = encoder_outputs[0].transpose(0, 1).to(device)
        if attention_mask is None:
            attention_mask = getattr(encoder_outputs, "attention_mask", None)
        check_mask("attention_mask", attention_mask, out_CBD.shape[1], len(out_CBD), 0)
        padding_BC = None if attention_mask is None else ~attention_mask.bool().to(device)
        if decoder_input_ids is None:
            if labels is None:
                raise UserError("decoder_input_ids: missing; give them, or labels, or call generate")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        decoder_input_ids = decoder_input_ids.to(device)
        if decoder_attention_mask is not None:
            decoder_attention_mask = decoder_attention_mask.to(device)
        check_targets(decoder_input_ids, decoder_attention_mask, 0 if cache is None else cache.get_seq_length())
        if use_cache is None:
            use_cache = self.config.use_cache and labels is None
        if cache is None and use_cache and not torch.is_grad_enabled():
            ring = self.decoder.stack.new_ring(self.config.memory_storage)
            cache = DecoderCache(DecoderState(ring, out_CBD, padding_BC, self.decoder.stack.encoder_contexts))
        if cache is None:
            features_BTD = self.decoder.run(decoder_input_ids, out_CBD, padding_BC)
        elif torch.is_grad_enabled():
            raise UserError("past_key_values: decoding step by step has no gradient; call the model in torch.no_grad()")
        else:
            features_BTD = self.decoder.run_steps(decoder_input_ids, cache)
        loss = None if labels is None else mean_loss(self.decoder, features_BTD, labels, num_items_in_batch)
        adaptive_training = self.training and loss is not None and self.decoder.adaptive_softmax is not None
        output = TranslationOutput(
            loss=loss,
            logits=None if adaptive_training else self.decoder.logits(features_BTD),
            encoder_last_hidden_state=encoder_outputs[0],
            **{CACHE_FIELD: cache},
        )
        as_dict = self.config.return_dict if return_dict is None else return_dict
        return output if as_dict else output.to_tuple()
