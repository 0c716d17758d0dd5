"""The path from a language model's tokens to its logits: embeddings, layers with memory, output layer."""

from contextlib import nullcontext

import torch
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.modules.language_model import STACKS, TextModel
from fb_fairseq.modules.words import WordOptions, build_word_layers
from fb_fairseq.ops.log import log_once
from fb_fairseq.transformers.attention import attention
from fb_fairseq.transformers.cache import StreamCache
from fb_fairseq.transformers.call_memory import open_memory
from fb_fairseq.transformers.configuration import PAD, LanguageModelConfig
from fb_fairseq.transformers.inputs import (
    CACHE_FIELD,
    DecoderOutput,
    check_arguments,
    check_mask,
    check_positions,
    packed_positions,
    padded_positions,
)

WITHOUT_PENALTY = "adaptive spans: the loss is computed outside of the model, and so without their penalty"


class Decoder(TextModel):
    """Embedding, a stack of layers, and the output layer; as ``fb_fairseq.models.language_model``'s."""

    def __init__(self, config: LanguageModelConfig):
        super().__init__()
        self.config = config
        words = config.options_as(WordOptions)
        self.memory_storage = config.memory_storage
        self.absolute_positions = getattr(config, "relative_positions", "") == "none"
        kind, options = STACKS[config.model_type]
        self.add(
            kind(config.options_as(options)), build_word_layers(words, config.decoder_embed_dim, config.vocab_size, PAD)
        )

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: StreamCache | None = None,
        use_cache: bool | None = None,
        position_ids: Tensor | None = None,
        *,
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

        The other arguments, which are transformers', and errors: see ``LanguageModel.forward``.

        Returns:
            ``last_hidden_state`` [B, T, D], behind the final norm, and ``past_key_values``.
        """
        check_arguments(others)
        if input_ids is None and inputs_embeds is None:
            raise UserError("input_ids: missing; give tokens, or inputs_embeds")
        vectors_BTD = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        B, T = vectors_BTD.shape[:2]
        trains = self.training and torch.is_grad_enabled()
        memory = open_memory(
            self.config,
            past_key_values,
            cache,
            use_cache=use_cache,
            texts=B,
            training=self.training,
            trains=trains,
        )
        cache = memory.cache
        check_mask("attention_mask", attention_mask, B, T, cache.get_seq_length())
        if cache.ended:
            raise UserError("past_key_values: its texts were padded at the end; pad at the beginning to continue them")
        new_BT = None if attention_mask is None else attention_mask[:, -T:]
        positions_TB, ended = self._positions(vectors_BTD, new_BT, position_ids, cache)
        if ended:
            memory.end_texts()
        start = cache.position
        if position_ids is not None and not cache.text.start:  # (they are of the memory's whole text)
            check_positions(position_ids, B, T, start, positions_TB, new_BT)
        x_BTD = self.embed_vectors(vectors_BTD, start if positions_TB is None else positions_TB.t())
        if output_hidden_states is None:
            output_hidden_states = getattr(self.config, "output_hidden_states", False)
        if output_attentions is None:
            output_attentions = getattr(self.config, "output_attentions", False)
        attentions = attention(self.stack, cache, x_BTD, positions_TB) if output_attentions else None
        with self.stack.watching() if output_hidden_states else nullcontext() as watched:
            features_BTD = cache.run(self.stack, x_BTD, positions_TB)
        memory.add(input_ids if inputs_embeds is None else None, T)
        if trains and not penalty_counts and self.stack.report().penalty is not None:
            log_once(WITHOUT_PENALTY)
        return DecoderOutput(
            last_hidden_state=features_BTD,
            hidden_states=tuple(torch.cat(parts).transpose(0, 1) for parts in zip(*watched)) if watched else None,
            attentions=attentions,
            **{CACHE_FIELD: cache if memory.is_returned else None},
        )

    def _positions(
        self, vectors_BTD: Tensor, mask_BT: Tensor | None, position_ids: Tensor | None, cache: StreamCache
    ) -> tuple[Tensor | None, bool]:
        """The positions [T, B] of the new tokens in their texts, and so how many steps back each token may look; None
        where all texts go on from where the memory ends, without padding. And whether any text is padded at the end.

        Args:
            vectors_BTD: of the new tokens.
            mask_BT: 0 where they are padding.
            position_ids: see ``packed_positions``.
            cache: the memory.
        """
        B, T = vectors_BTD.shape[:2]
        begun = cache.position > 0
        age_B = cache.age_B
        if T == 1 and begun:  # a step of generation, which is not padding: no waiting for the device
            return None if age_B is None else age_B[None], False
        if age_B is None and (mask_BT is None or bool(mask_BT.all())):
            return None if begun or position_ids is None else packed_positions(position_ids, B, T), False
        kept_BT = torch.ones(B, T, device=vectors_BTD.device) if mask_BT is None else mask_BT
        return padded_positions(kept_BT, age_B, begun)
