"""The encoder and the decoder of the translation model, and the values that they begin with.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``; C counts the source's positions.
"""

from dataclasses import dataclass

import torch
import torch.nn as nn
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.modules.adaptive_softmax import AdaptiveSoftmax
from fb_fairseq.modules.embedder import Embedder
from fb_fairseq.modules.encoder import TransformerEncoder
from fb_fairseq.modules.language_model import OutputLayer
from fb_fairseq.modules.layer import CrossAttentionLayer
from fb_fairseq.modules.options import EncoderOptions
from fb_fairseq.modules.words import WordOptions
from fb_fairseq.transformers.cache import DecoderCache
from fb_fairseq.transformers.configuration import PAD, FeedbackDecoderConfig
from fb_fairseq.transformers.inputs import check_arguments, check_mask

PROJECTIONS = ("k_proj", "v_proj", "q_proj")  # of attention


class Encoder(TransformerEncoder):
    """The encoder, as ``generate`` calls it."""

    main_input_name = "input_ids"

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **others) -> "EncoderOutput":
        """Read sources [B, C]. ``attention_mask``: 0 for padding; None: for pads."""
        check_arguments(others)
        check_mask("attention_mask", attention_mask, *input_ids.shape, 0)
        kept_BC = input_ids != PAD if attention_mask is None else attention_mask.bool()
        out_CBD = super().forward(input_ids, kept_BC)
        return EncoderOutput(last_hidden_state=out_CBD.transpose(0, 1), attention_mask=kept_BC)


@dataclass
class EncoderOutput(BaseModelOutput):
    """Results of the encoder: ``last_hidden_state`` [B, C, D].

    Attributes:
        attention_mask: False where the source is padded [B, C]. (``generate`` gives the decoder no mask if it was given
            none.)
    """

    attention_mask: Tensor | None = None


class TranslationDecoder(Embedder, OutputLayer):
    """The decoder; as ``fb_fairseq.models.feedback_decoder``'s, in which fairseq makes embeddings and layers."""

    stack: FeedbackTransformer

    def __init__(self, config: FeedbackDecoderConfig, embed_tokens: nn.Embedding):
        super().__init__(
            config.options_as(EncoderOptions),
            embed_tokens,
            config.decoder_learned_pos,
            config.max_target_positions,
            "max_target_positions",
        )
        options = config.stack_options()
        words = config.options_as(WordOptions)
        own_keys = options.memory_projections == "per-layer"
        width = options.decoder_embed_dim
        layers = [
            CrossAttentionLayer(options, own_keys, config.encoder_embed_dim) for _ in range(options.decoder_layers)
        ]
        self.hold(FeedbackTransformer(options, nn.ModuleList(layers)))
        self.adaptive_softmax = self.output_projection = None
        cutoffs = words.cutoffs("adaptive_softmax_cutoff")
        if cutoffs:
            self.adaptive_softmax = AdaptiveSoftmax(
                config.vocab_size,
                width,
                cutoffs,
                factor=words.adaptive_softmax_factor,
                dropout=words.adaptive_softmax_dropout,
            )
        else:
            self.output_projection = nn.Linear(width, config.vocab_size, bias=False)
            nn.init.normal_(self.output_projection.weight, std=width**-0.5)
            if config.has_tied_words():
                self.output_projection.weight = embed_tokens.weight

    def run(self, tokens_BT: Tensor, out_CBD: Tensor, padding_BC: Tensor | None) -> Tensor:
        """Features [B, T, D] of whole targets."""
        x_TBD = self._embed(tokens_BT, 0)
        encoder = self.stack.encoder_contexts(out_CBD, padding_BC)
        y_TBD, _ = self.stack.run_loop(self.stack.target_inputs(x_TBD, encoder))
        return self.stack.finish(y_TBD).transpose(0, 1)

    def run_steps(self, tokens_BT: Tensor, cache: DecoderCache) -> Tensor:
        """Features [B, T, D] of the next tokens, which are remembered."""
        x_TBD = self._embed(tokens_BT, cache.get_seq_length())
        options = self.stack.loop_options(self.stack.options.attention_span)
        y_TBD, _ = self.stack.decode(x_TBD, cache.state, options)
        return self.stack.finish(y_TBD).transpose(0, 1)

    def _embed(self, tokens_BT: Tensor, start: int) -> Tensor:
        """Embeddings [T, B, D]. (Padding is at the end, and so its positions do not matter.)"""
        positions_T = torch.arange(start + 1, start + tokens_BT.shape[1] + 1, device=tokens_BT.device)
        return self.embed(tokens_BT, positions_T).transpose(0, 1)


def new_embedding(symbols: int, width: int) -> nn.Embedding:
    """Embeddings, initialised as fairseq's."""
    embedding = nn.Embedding(symbols, width, padding_idx=PAD)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    with torch.no_grad():
        embedding.weight[PAD].zero_()
    return embedding


def initialise_layers(model: nn.Module) -> None:
    """Initialise the projections of attention, and the feed-forward sublayers, as fairseq's Transformer does."""
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        if last in PROJECTIONS:
            nn.init.xavier_uniform_(module.weight, gain=2**-0.5)
        elif last == "out_proj":
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        elif last in ("fc1", "fc2"):
            module.reset_parameters()
