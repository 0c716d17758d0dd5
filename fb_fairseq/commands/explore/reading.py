"""Load a language model, from a checkpoint of fairseq or the folder of an export; read a text with it step by step, and
keep what it computes.

Step 0 reads ``</s>``, with which texts begin, and step t their t-th token. Each step attends to the memory of the steps
before it, predicts the next token, and adds itself to the memory.

fairseq and transformers are imported only inside functions, so that either does without the other."""

import copy
import math
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fb_fairseq import byte_codec, pretrained
from fb_fairseq.commands.plot.models import CHOICE
from fb_fairseq.commands.read_model import read_language_model
from fb_fairseq.errors import UserError
from fb_fairseq.meaning import EOS, UNK, never_drawn
from fb_fairseq.pretrained.model import choices, log_probs

SYMBOL_OF_LINE_END = re.compile(" ?</s> ?")
LINE_BREAK, CONTINUES = "\u21b5", "\u00b7"  # the latter for the further bytes of a character
SIZES = (2, 3, 4)  # bytes of a character that has several
ARCHITECTURES = {
    "FeedbackTransformer": "Feedback Transformer",
    "RelativeTransformer": "Transformer",
    "AllAttention": "All-attention network",
}
BLOCK_STEPS = 64  # steps that are computed together, at most


class Vocabulary:
    """The symbols of a model's dictionary, in the order of their indices.

    ``tokenizer``: that of an exported model, which may split words into pieces; None: words are symbols. ``line_ends``:
    whether the model of words was trained with ``</s>`` at line ends."""

    def __init__(self, symbols: Sequence[str], tokenizer: Any | None = None, line_ends: bool = True):
        self.symbols, self._tokenizer, self._line_ends = list(symbols), tokenizer, line_ends
        self.of_bytes = self.symbols[UNK + 1 :] == byte_codec.SYMBOLS  # whether a symbol is a byte
        self.unit = "byte" if self.of_bytes else "token"  # what a symbol is called
        self.never_drawn = never_drawn(self.symbols)  # the tokens that are not generated
        self._indices = {symbol: index for index, symbol in enumerate(self.symbols)}

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without the ``</s>`` that models read first. Unknown words become ``<unk>``."""
        if self.of_bytes:
            return [self._indices[symbol] for symbol in byte_codec.encode(text.encode("utf-8", "replace"))]
        text = text.replace("\n", f" {self.symbols[EOS]} " if self._line_ends else " ")
        if self._tokenizer is not None:
            return self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return [self._indices.get(word, UNK) for word in text.split()]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens. Bytes that are no UTF-8 are replaced."""
        symbols = [self.symbols[token] for token in tokens]
        if self.of_bytes:
            return byte_codec.decode(symbols).decode("utf-8", "replace")
        text = " ".join(symbols) if self._tokenizer is None else self._tokenizer.decode(list(tokens))
        return SYMBOL_OF_LINE_END.sub("\n", text)

    def label(self, token: int) -> str:
        """A token as the pictures show it."""
        symbol = self.symbols[token]
        if not self.of_bytes:
            return LINE_BREAK if token == EOS else symbol
        return LINE_BREAK if symbol == byte_codec.SYMBOLS[ord("\n")] else byte_codec.label(symbol)

    def character(self, tokens: Sequence[int]) -> str:
        """The printable character that several bytes form; empty if they do not."""
        data = byte_codec.decode(self.symbols[token] for token in tokens) if self.of_bytes else b""
        text = data.decode("utf-8", "ignore")
        is_one = len(text) == 1 and text.isprintable() and text.encode() == data and len(data) == len(tokens) > 1
        return text if is_one else ""

    def labels(self, tokens: Sequence[int]) -> list[str]:
        """The tokens of a text as the pictures show them: a character of several bytes stands at the first one."""
        labels = list(map(self.label, tokens))
        for i in range(len(tokens)):
            for size in SIZES:
                character = self.character(tokens[i : i + size])
                if character:
                    labels[i : i + size] = [character] + [CONTINUES] * (len(labels[i : i + size]) - 1)
                    break
        return labels

    def next_label(self, text: Sequence[int], token: int) -> str:
        """A token that may follow a text, as the pictures show it: the character that it would complete."""
        ends = (self.character([*text[len(text) - size + 1 :], token]) for size in SIZES if len(text) >= size - 1)
        return next(filter(None, ends), "") or self.label(token)

    def ends_line(self, token: int) -> bool:
        """Whether a new line begins after a token."""
        return self.symbols[token] == byte_codec.SYMBOLS[ord("\n")] if self.of_bytes else token == EOS


def check_length(tokens: Sequence[int], most: int, unit: str) -> None:
    """Check that a text is not too long."""
    if len(tokens) > most:
        raise UserError(f"{len(tokens):,} {unit}s are too many: the page reads {most:,} at most (--max-steps)")


@dataclass
class ExploredModel:
    """A language model with attention, in evaluation mode."""

    path: str  # the checkpoint or folder
    decoder: Any  # a ``fb_fairseq.pretrained.model.LanguageModel``
    vocabulary: Vocabulary  # its symbols
    device: Any  # where it runs
    labels: bool = False  # whether it says the product so far of the permutations that it reads
    # held while the stack is watched, which only one thread may do: windows of the browser have their own
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def stack(self):
        """The model's layers."""
        return self.decoder.stack

    @property
    def kind(self) -> str:
        """The papers' name of such a model."""
        return ARCHITECTURES[type(self.stack).__name__]

    def log_probs(self, features_TD: Tensor) -> Tensor:
        """Log-probabilities [T, V] of the next token, of the stack's features."""
        return log_probs(self.decoder, features_TD[None])[0]


def load(path: str, data: str | None = None, cpu: bool = False) -> ExploredModel:
    """Load a language model.

    Args:
        path: a checkpoint, a folder that ``python -m fb_fairseq export`` has written, or a name of
            ``fb_fairseq.pretrained``.
        data: folder with a checkpoint's dictionary; None: that of its training data.
        cpu: use the CPU even if there is a GPU."""
    if not os.path.exists(pretrained.find(path)):
        raise UserError(f"{path}: no such file or folder; give a checkpoint, or the folder of an exported model")
    model, tokenizer = read_language_model(path, data, cpu), None
    if model.splits_words:
        import fb_fairseq.transformers.broken_torchaudio  # noqa: F401  before transformers is imported

        # isort: split
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(path)
    if type(model.stack).__name__ not in ARCHITECTURES:
        raise UserError(f"{path}: attends to nothing (an LSTM); give {CHOICE}")
    if model.labels and len({"".join(sorted(symbol)) for symbol in model.symbols[UNK + 1 :]}) != 1:
        raise UserError(f"{path}: its labels are no products of permutations; use plot --position-accuracy")
    vocabulary = Vocabulary(model.symbols, tokenizer, model.line_ends)
    return ExploredModel(path, model, vocabulary, next(model.parameters()).device, model.labels)


class Candidate(NamedTuple):
    """A token that may come next."""

    token: int
    probability: float  # the model's
    drawn: float  # its probability in generating, with temperature and top-k


class Reading:
    """A text that a model has read so far."""

    def __init__(self, model: ExploredModel):
        self.model = model
        self.tokens: list[int] = []  # those read, ``</s>`` first: a token for each step
        # the surprise of each token, −log₂ of the probability that the model gave it; of the first one 0
        self.bits: list[float] = []
        self.before: list[str] = []  # of a tracker: the products in the text that was read before this one
        self._state = None
        self._features: list[Tensor] = []  # of each step, [D]
        self._attention: list[Tensor] = []  # [L, H, S] by distance
        self._memory: list[Tensor] = []  # what each step adds, [K, D]
        self.read([EOS])

    def copy(self) -> "Reading":
        """Another reading of the same text, which may go on differently."""
        other = copy.copy(self)
        for name in ("tokens", "bits", "_features", "_attention", "_memory"):
            setattr(other, name, list(getattr(self, name)))
        return other

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.tokens)

    def read(self, tokens: Sequence[int]) -> None:
        """Go on reading: the result is the same as if all of the text had been read at once."""
        stack = self.model.stack
        # Not more steps than the memory carries on: so it holds all that the block has added.
        block = max(1, min(BLOCK_STEPS, stack.carried_steps(stack.reaches())))
        for first in range(0, len(tokens), block):
            with torch.no_grad(), self.model.lock:
                self._read_block(list(tokens[first : first + block]))

    def _read_block(self, tokens: list[int]) -> None:
        stack, T = self.model.stack, len(tokens)
        x_TBD = self.model.decoder.embed(torch.tensor([tokens], device=self.model.device), len(self)).transpose(0, 1)
        weights_LBHTS, after = stack.memory_attention(x_TBD, self._state)
        with stack.watching() as watched:  # by plain operations: no step loop has to be compiled first
            stack.run_block(x_TBD, self._state)
        self._state = after
        features_TD = watched[0][-1][:, 0]
        if self.tokens:
            before_TD = torch.cat([self._features[-1][None].to(features_TD), features_TD[:-1]])
            lprobs_T = self.model.log_probs(before_TD).gather(1, torch.tensor(tokens, device=before_TD.device)[:, None])
            self.bits += [-lprob / math.log(2) for lprob in lprobs_T[:, 0].tolist()]
        else:
            self.bits += [0.0]
        self.tokens += tokens
        self._features += features_TD.cpu().unbind(0)
        self._attention += weights_LBHTS[:, 0].cpu().unbind(2)
        self._memory += after.memory_KCBD[:, -T:, 0].cpu().unbind(1)

    def mean_bits(self) -> float | None:
        """The mean surprise of the text's tokens; None if it has none."""
        return sum(self.bits[1:]) / (len(self) - 1) if len(self) > 1 else None

    def next_log_probs(self, step: int) -> Tensor:
        """The log-probabilities [V] of the token after a step."""
        with torch.no_grad():
            return self.model.log_probs(self._features[step][None].to(self.model.device))[0].cpu()

    def candidates(self, step: int, number: int, temperature: float, topk: int) -> list[Candidate]:
        """The likeliest tokens after a step, and the one that follows it in the text, wherever it is."""
        lprobs = self.next_log_probs(step)
        likeliest = lprobs.topk(min(number, len(lprobs))).indices.tolist()
        follows = self.tokens[step + 1 : step + 2]
        probabilities, symbols = choices(lprobs, self.model.vocabulary.never_drawn, temperature, topk)
        drawn = dict(zip(symbols.tolist(), probabilities.tolist()))
        shown = likeliest + [token for token in follows if token not in likeliest]
        return [Candidate(token, lprobs[token].exp().item(), drawn.get(token, 0.0)) for token in shown]

    def entropy(self, step: int) -> float:
        """The entropy of the next token, in bits."""
        lprobs = self.next_log_probs(step)
        return -(lprobs.exp() * lprobs.clamp(min=-1e9)).sum().item() / math.log(2)

    def draw(self, temperature: float, topk: int) -> int:
        """The next token, drawn as ``python -m fb_fairseq generate`` does."""
        lprobs, never = self.next_log_probs(len(self) - 1), self.model.vocabulary.never_drawn
        probabilities, symbols = choices(lprobs, never, temperature, topk)
        return int(symbols[torch.multinomial(probabilities, 1)[0]])

    def products(self) -> list[str]:
        """Of a model with labels: the product so far that it gives each step after the first."""
        names = self.model.vocabulary.symbols
        return [names[int(self.next_log_probs(step).argmax())] for step in range(1, len(self))]

    def right_products(self) -> list[str]:
        """The right products: of permutations, written as the images of 1, 2, …, the right one acts first."""
        names = [self.model.vocabulary.symbols[token] for token in self.tokens[1:]]
        return list(accumulate(names, lambda product, one: "".join(product[int(image) - 1] for image in one)))

    def seen(self, step: int) -> range:
        """The steps in the memory that a step attends to, oldest first."""
        return range(max(0, step - max(self.model.stack.reaches())), step)

    def attention(self, step: int) -> Tensor:
        """Attention of a step's layers and heads: weights [L, H, C] of the steps ``seen``.

        A head's weights sum to 1, but where persistent vectors take a part of its attention."""
        return self._attention[step][..., : len(self.seen(step))].flip(-1)

    def persistent(self, step: int) -> Tensor | None:
        """The share [L, H] of a step's attention that its layers and heads pay to persistent vectors. None if the model
        has none, or not in the same softmax."""
        options = self.model.stack.options
        if not getattr(options, "persistent_memory_size", 0) or options.persistent_memory_variant != "all-attn":
            return None
        return 1 - self._attention[step].sum(-1)

    def memory(self, step: int) -> Tensor:
        """The memory that a step attends to: vectors [K, C, D] of the steps ``seen``. K is 1, or the number of layers
        where each has a memory of its own."""
        seen = self.seen(step)
        return torch.stack(self._memory[seen.start : seen.stop], 1) if seen else self._memory[0][:, None][:, :0]

    def added(self, step: int) -> Tensor:
        """The vectors [K, D] that a step adds to the memory."""
        return self._memory[step]


def mix_KA(model: ExploredModel) -> list[list[float]]:
    """The weights of the embedding and of each layer's output in each memory, [K, L + 1]."""
    stack = model.stack
    with torch.no_grad():
        return stack.loop_weights(model.device, stack.reaches()).mix_KA.tolist()
