"""A language model in plain PyTorch: its parameters, its symbols, and generation token by token."""

import codecs
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fb_fairseq import byte_codec
from fb_fairseq.errors import UserError
from fb_fairseq.meaning import EOS, PAD, SPECIAL, UNK, never_drawn
from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, StreamState, TransformerOptions
from fb_fairseq.modules.lstm import LSTM, LSTMOptions
from fb_fairseq.modules.positions import sinusoidal_positions
from fb_fairseq.modules.stack import StackHolder
from fb_fairseq.modules.words import WordOptions, build_word_layers
from fb_fairseq.ops.feedback.loops import AUTO, REFERENCE
from fb_fairseq.trained_model import PREFIX, TrainedModel

LOWEST_TEMPERATURE = 1e-30  # logits that are divided by less overflow
MANY = 1000  # steps for which it is worth while to compile a step loop
STACKS = {
    "feedback_transformer_lm": (FeedbackTransformer, TransformerOptions),
    "relative_transformer_lm": (RelativeTransformer, TransformerOptions),
    "all_attention_lm": (AllAttention, TransformerOptions),
    "streaming_lstm_lm": (LSTM, LSTMOptions),
}


def of_bytes(symbols: Sequence[str]) -> bool:
    """Whether the symbols are those of ``fb_fairseq.byte_codec``, so that a token is a byte."""
    return list(symbols[len(SPECIAL) :]) == byte_codec.SYMBOLS


def encode(prompt: str, symbols: Sequence[str], option: str = "--prompt") -> list[int]:
    """The tokens of a prompt. ``option``: the option that gives the prompt."""
    if of_bytes(symbols):
        try:
            words = byte_codec.encode(byte_codec.unescape(prompt))
        except ValueError as error:
            raise UserError(f"{option}: {str(error).partition(': ')[2]}") from None
    else:
        words = prompt.split()
    indices = {symbol: index for index, symbol in enumerate(symbols)}
    for word in words:
        if word not in indices:
            raise UserError(
                f"{option}: {word!r} is not in the dictionary; tokenise the text like the training text, and write "
                f"{SPECIAL[UNK]} for an unknown word"
            )
    return [indices[word] for word in words]


def decoder(symbols: Sequence[str]) -> Callable[[int], str]:
    """A function that gives each token's text, in order. The bytes of a character come with its last one."""
    if not of_bytes(symbols):
        return lambda index: "\n" if index == EOS else symbols[index] + " "
    characters = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda index: characters.decode(byte_codec.decode([symbols[index]]))


def choices(lprobs: Tensor, never: list[int], temperature: float, topk: int) -> tuple[Tensor, Tensor]:
    """The distribution that the next token is drawn from.

    Args:
        lprobs: the model's log-probabilities [V].
        never: tokens that are not drawn.
        temperature, topk: see ``sample``.

    Returns:
        Probabilities and the tokens that have them, the likeliest first."""
    lprobs = lprobs.index_fill(0, torch.tensor(never, device=lprobs.device), -float("inf"))
    greedy = temperature < LOWEST_TEMPERATURE
    best, symbols = lprobs.topk(1 if greedy else min(topk or len(lprobs), len(lprobs)))
    return torch.softmax(best / (1 if greedy else temperature), 0), symbols


def sample(
    read: Callable[[int], Tensor],
    prompt: Sequence[int],
    length: int,
    temperature: float,
    topk: int,
    symbols: Sequence[str],
    seed: int | None = None,
) -> Iterator[int]:
    """Generate tokens one by one, ``length`` of them. With models of bytes, ``</s>`` is a document's end, and ends it.
    PyTorch's own random numbers stay as they are.

    Args:
        read: a function that reads a token and gives the log-probabilities [V] of the next one.
        prompt: the tokens to continue.
        temperature: the logits are divided by it; 0, or too small to divide by: always the likeliest token.
        topk: the number of tokens to choose from; 0: all.
        symbols: those of the model's dictionary.
        seed: for the same tokens again; None: new ones each time."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    unread, never, ends = [EOS, *prompt], never_drawn(symbols), of_bytes(symbols)
    for _ in range(length):
        for token in unread:
            lprobs = read(token)
        probabilities, tokens = choices(lprobs, never, temperature, topk)
        token = int(tokens[torch.multinomial(probabilities.cpu(), 1, generator=generator)[0]])
        if token == EOS and ends:
            return
        yield token
        unread = [token]


class LanguageModel(StackHolder):
    """Embedding, a stack of layers, and the output layer, with the parameters' names in fairseq.

    Attributes:
        symbols: the symbols of its dictionary, in the order of the tokens.
        splits_words: whether these are pieces of words, for which texts take the tokenizer of transformers.
        labels: whether it predicts a label of each token, which has the token's name, instead of the next token.
        line_ends: whether it was trained with ``</s>`` at line ends."""

    def __init__(self, trained: TrainedModel):
        super().__init__()
        dictionaries = list(trained.symbols.values())
        self.symbols, self.splits_words = dictionaries[0], trained.splits_words
        self.labels, self.line_ends = bool(trained.task.get("labels")), not trained.task.get("omit_eos")
        self.memory_storage = trained.options.get("memory_storage", "keys-values")
        self.absolute_positions = trained.options.get("relative_positions") == "none"
        stack, options = STACKS[trained.architecture]
        self.hold(stack(trained.options_of(options)))
        width, sizes = self.stack.options.decoder_embed_dim, [len(symbols) for symbols in dictionaries]
        words = build_word_layers(trained.options_of(WordOptions), width, sizes[0], PAD, sizes[-1])
        self.embed_tokens, self.embed_scale = words.embed_tokens, words.embed_scale
        self.adaptive_softmax, self.output_projection = words.adaptive_softmax, words.output_projection

    def embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Embeddings [B, T, D] of tokens [B, T], of which the first is at position ``start``."""
        x_BTD = self.embed_tokens(tokens) * self.embed_scale
        if self.absolute_positions:
            x_BTD = x_BTD + sinusoidal_positions(start, tokens.shape[1], x_BTD[0, 0])
        return x_BTD

    def forward(
        self, tokens_TB: Tensor, state: StreamState | None = None, start: int = 0
    ) -> tuple[Tensor, StreamState]:
        """Logits [T, B, V] of the next tokens or of the labels, or log-probabilities of an adaptive softmax; and the
        state that continues these streams.

        Args:
            tokens_TB: T steps of B texts. Each begins with ``</s>``, token 2.
            state: the one after the steps before; None: these are the first ones.
            start: number of steps before; only models without relative positions look at it."""
        features_TBD, state = self.stack(self.embed(tokens_TB.t(), start).transpose(0, 1), state)
        softmax = self.output_projection or partial(log_probs, self)
        return softmax(features_TBD), state

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without the ``</s>`` before it."""
        return encode(byte_codec.escape(text.encode()) if of_bytes(self.symbols) else text, self.symbols, "text")

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return "".join(map(decoder(self.symbols), tokens))

    def generate(
        self, prompt: str = "", length: int = 300, temperature: float = 1.0, topk: int = 10, seed: int | None = None
    ) -> str:
        """A text and its continuation by up to ``length`` tokens; see ``sample``.

        Args:
            prompt: the beginning of the text."""
        if self.labels or min(length, temperature, topk) < 0:
            raise UserError("generate: needs a model without labels, and a length, temperature and top-k of 0 or more")
        tokens = self.encode(prompt)
        new = sample(reader(self, length), tokens, length, temperature, topk, self.symbols, seed)
        return self.decode([*tokens, *new])


def log_probs(decoder: Any, features: Tensor) -> Tensor:
    """Log-probabilities [B, T, V] of the next token. ``decoder``: a ``LanguageModel``, or fairseq's side of one."""
    if decoder.adaptive_softmax is not None:
        return decoder.adaptive_softmax.get_log_prob(features, None).float()
    return decoder.output_projection(features).float().log_softmax(-1)


def reader(decoder: Any, steps: int) -> Callable[[int], Tensor]:
    """A function that reads one token after the other, and gives the log-probabilities [V] of the next one, with a
    memory of constant size.

    Args:
        decoder: a ``LanguageModel``, or fairseq's side of one.
        steps: how many tokens it reads, about: for few, no step loop is compiled first."""
    stack, device, position = copy(decoder.stack), next(decoder.parameters()).device, 0
    if steps < MANY and getattr(stack.options, "step_loop", "") == AUTO:
        stack.options = replace(stack.options, step_loop=REFERENCE)
    ring = stack.new_ring(decoder.memory_storage)

    @torch.no_grad()
    def read(token: int) -> Tensor:
        nonlocal position
        x_BD = decoder.embed(torch.tensor([[token]], device=device), position)[:, 0]
        position += 1
        return log_probs(decoder, stack.run_step(x_BD, ring)[:, None])[0, 0]

    return read


def build(trained: TrainedModel) -> LanguageModel:
    """A language model in evaluation mode. Its first parameters are random ones, but the process's random numbers stay
    the user's."""
    if trained.architecture not in STACKS:
        raise trained.error(f"is not a language model of this package; give one of {', '.join(STACKS)}")
    with torch.random.fork_rng(devices=[]):
        model = LanguageModel(trained)
    trained.fill(model, PREFIX)
    return model.eval()
