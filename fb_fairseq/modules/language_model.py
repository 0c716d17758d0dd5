"""The parts of all language models: embeddings, a stack of layers, and an output layer, by fairseq's names.

``fb_fairseq.pretrained`` makes models of them without fairseq; ``fb_fairseq.transformers`` wraps them for Hugging
Face's library. Shape suffixes: see ``fb_fairseq/ops/__init__.py``; V counts the symbols.
"""

from collections.abc import Callable
from copy import copy

import torch
import torch.nn as nn
from torch import Tensor

from fb_fairseq.modules.adaptive_losses import adaptive_guess
from fb_fairseq.modules.adaptive_softmax import AdaptiveSoftmax
from fb_fairseq.modules.all_attention import AllAttention
from fb_fairseq.modules.feedback_transformer import FeedbackTransformer
from fb_fairseq.modules.holder import StackHolder
from fb_fairseq.modules.interface import Stack
from fb_fairseq.modules.lstm import LSTM, LSTMOptions
from fb_fairseq.modules.options import TransformerOptions
from fb_fairseq.modules.positions import sinusoids
from fb_fairseq.modules.relative_transformer import RelativeTransformer
from fb_fairseq.modules.stack import TransformerStack
from fb_fairseq.modules.words import WordLayers
from fb_fairseq.ops.dropout import dropout
from fb_fairseq.ops.feedback.loops import AUTO, REFERENCE
from fb_fairseq.ops.feedback.stepper import Stepper

# The stack of each language model, and its options, by ``--arch`` without a size and ``model_type`` in config.json.
STACKS: dict[str, tuple[type[Stack], type]] = {
    "feedback_transformer_lm": (FeedbackTransformer, TransformerOptions),
    "relative_transformer_lm": (RelativeTransformer, TransformerOptions),
    "all_attention_lm": (AllAttention, TransformerOptions),
    "streaming_lstm_lm": (LSTM, LSTMOptions),
}
MANY = 1000  # steps for which it is worth while to compile a step loop


class OutputLayer(StackHolder):
    """Base of decoders: the layer behind their stack, plain or adaptive.

    Attributes:
        adaptive_softmax: None if the output layer is plain.
        output_projection: maps features [..., D] to logits [..., V]; None with an adaptive softmax.
    """

    adaptive_softmax: AdaptiveSoftmax | None
    output_projection: nn.Linear | None

    def logits(self, features: Tensor) -> Tensor:
        """Logits [..., V] of features [..., D]; those of an adaptive softmax are log-probabilities."""
        if self.adaptive_softmax is None:
            return self.output_projection(features)
        return self.adaptive_softmax.get_log_prob(features, None)

    def log_probs(self, features_BTD: Tensor) -> Tensor:
        """Log-probabilities [B, T, V] of the next token, in single precision."""
        return self.logits(features_BTD).float().log_softmax(-1)

    def guess(self, features_BTD: Tensor) -> Tensor:
        """The most probable symbols [B, T]."""
        if self.adaptive_softmax is None:
            return self.output_projection(features_BTD).argmax(-1)
        return adaptive_guess(self.adaptive_softmax, features_BTD.flatten(0, 1)).view(features_BTD.shape[:2])


class TextModel(OutputLayer):
    """Embeddings, a stack, and an output layer.

    Attributes:
        absolute_positions: whether sinusoidal positions are added to the embeddings.
        memory_storage: what decoding keeps of each step; see ``fb_fairseq.ops.feedback.ring.STORAGES``.
    """

    absolute_positions = False
    memory_storage = "keys-values"

    def add(self, stack: Stack, words: WordLayers) -> None:
        """Set the stack, its embeddings and its output layer. To be called once, in the constructor."""
        self.hold(stack)
        self.embed_tokens, self.embed_scale = words.embed_tokens, words.embed_scale
        self.adaptive_softmax, self.output_projection = words.adaptive_softmax, words.output_projection

    def embed(self, tokens_BT: Tensor, start: int = 0) -> Tensor:
        """Embeddings [B, T, D] of tokens, of which the first is at position ``start``."""
        return self.embed_vectors(self.embed_tokens(tokens_BT), start)

    def embed_vectors(self, vectors_BTD: Tensor, positions: int | Tensor) -> Tensor:
        """Embeddings [B, T, D] of tokens.

        Args:
            vectors_BTD: those of ``embed_tokens``.
            positions: that of the first token; or of all, [B, T].
        """
        x_BTD = vectors_BTD * self.embed_scale
        if self.absolute_positions:
            if not isinstance(positions, Tensor):
                positions = torch.arange(positions, positions + x_BTD.shape[1], device=x_BTD.device)
            x_BTD = x_BTD + sinusoids(positions, x_BTD[0, 0])
        return dropout(x_BTD, self.stack.draw(self.stack.options.embedding_dropout, x_BTD.shape, x_BTD))

    def reader(self, steps: int) -> Callable[[int], Tensor]:
        """A function that reads one token after the other, and gives the log-probabilities [V] of the next one, with a
        memory of constant size.

        Args:
            steps: how many tokens it reads, about: for few, no step loop is compiled first.
        """
        stack = copy(self.stack)
        device = next(self.parameters()).device
        position = 0
        if steps < MANY and isinstance(stack, TransformerStack) and stack.stepper.name == AUTO:
            stack.stepper = Stepper(REFERENCE)
        ring = stack.new_ring(self.memory_storage)

        @torch.no_grad()
        def read(token: int) -> Tensor:
            nonlocal position
            x_BD = self.embed(torch.tensor([[token]], device=device), position)[:, 0]
            position += 1
            return self.log_probs(stack.run_step(x_BD, ring)[:, None])[0, 0]

        return read
