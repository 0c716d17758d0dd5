"""Texts and tokens: symbols of a dictionary, and generation token by token."""

import codecs
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from fb_fairseq import byte_codec
from fb_fairseq.errors import UserError

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]  # fairseq's special symbols, by index
BOS, PAD, EOS, UNK = range(4)
NEVER_DRAWN = [BOS, PAD, UNK]  # in generating text
LOWEST_TEMPERATURE = 1e-30  # logits that are divided by less overflow


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
                f"{option}: {word!r} is not in dict.txt; tokenise the text like the training text, and write "
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
    read: Callable[[int], Tensor], prompt: Sequence[int], length: int, temperature: float, topk: int, ends: bool
) -> Iterator[int]:
    """Generate tokens one by one, ``length`` of them.

    Args:
        read: a function that reads a token and gives the log-probabilities [V] of the next one.
        prompt: the tokens to continue.
        temperature: the logits are divided by it; 0, or too small to divide by: always the likeliest token.
        topk: the number of tokens to choose from; 0: all.
        ends: end at ``</s>``, which with models of bytes is a document's end."""
    unread = [EOS, *prompt]
    for _ in range(length):
        for token in unread:
            lprobs = read(token)
        probabilities, tokens = choices(lprobs, NEVER_DRAWN, temperature, topk)
        token = int(tokens[torch.multinomial(probabilities, 1)[0]])
        if token == EOS and ends:
            return
        yield token
        unread = [token]
