"""A language model in plain PyTorch: its parameters, its symbols, and generation token by token."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from fb_fairseq.errors import UserError
from fb_fairseq.modules import StreamState
from fb_fairseq.modules.language_model import STACKS, TextModel
from fb_fairseq.modules.words import WordOptions, build_word_layers
from fb_fairseq.pretrained.vocabulary import Vocabulary
from fb_fairseq.symbols import EOS, PAD
from fb_fairseq.trained_model import PREFIX, TrainedModel

LOWEST_TEMPERATURE = 1e-30  # logits that are divided by less overflow


def choices(lprobs: Tensor, never: list[int], temperature: float, topk: int) -> tuple[Tensor, Tensor]:
    """The distribution that the next token is drawn from.

    Args:
        lprobs: the model's log-probabilities [V].
        never: tokens that are not drawn.
        temperature, topk: see ``sample``.

    Returns:
        Probabilities and the tokens that have them, the likeliest first.
    """
    lprobs = lprobs.index_fill(0, torch.tensor(never, device=lprobs.device), -float("inf"))
    greedy = temperature < LOWEST_TEMPERATURE
    best, symbols = lprobs.topk(1 if greedy else min(topk or len(lprobs), len(lprobs)))
    divisor = 1 if greedy else min(temperature, 1 / LOWEST_TEMPERATURE)  # by infinity, -inf would be no number
    return torch.softmax(best / divisor, 0), symbols


def sample(
    read: Callable[[int], Tensor],
    prompt: Sequence[int],
    length: int,
    *,
    temperature: float,
    topk: int,
    vocabulary: Vocabulary,
    seed: int | None = None,
) -> Iterator[int]:
    """Generate tokens one by one. With models of bytes, ``</s>`` is a document's end, and ends it.
    PyTorch's own random numbers stay as they are.

    Args:
        read: a function that reads a token and gives the log-probabilities [V] of the next one.
        prompt: the tokens to continue.
        length: how many tokens, at most.
        temperature: the logits are divided by it; 0, or too small to divide by: always the likeliest token.
        topk: the number of tokens to choose from; 0: all.
        vocabulary: the model's.
        seed: for the same tokens again; None: new ones each time.
    """
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    unread = [EOS, *prompt]
    for _ in range(length):
        for token in unread:
            lprobs = read(token)
        probabilities, tokens = choices(lprobs, vocabulary.never_drawn, temperature, topk)
        token = int(tokens[torch.multinomial(probabilities.cpu(), 1, generator=generator)[0]])
        if token == EOS and vocabulary.of_bytes:
            return
        yield token
        unread = [token]


class LanguageModel(TextModel):
    """Embedding, a stack of layers, and the output layer, with the parameters' names in fairseq.

    Attributes:
        source: what messages call it: the file or folder that it was read from, perhaps after an option.
        dictionaries: the symbols of its dictionaries, in the order of the tokens, by the names of the dictionaries'
            files: of its inputs, and of its labels.
        vocabulary: the symbols of its inputs, and texts of them.
        labels: whether it predicts a label of each token, instead of the next token.
        separate_sequences: whether it has read each sequence of its training with an empty memory.
        line_ends: whether it was trained with ``</s>`` at line ends.
    """

    def __init__(self, trained: TrainedModel):
        super().__init__()
        self.source, self.dictionaries = trained.path, trained.symbols
        sizes = list(map(len, trained.symbols.values()))
        self.labels = bool(trained.task.get("labels"))
        self.separate_sequences = bool(trained.task.get("separate_sequences"))
        self.line_ends = not trained.task.get("omit_eos")
        self.vocabulary = Vocabulary(self.symbols, trained.path if trained.splits_words else None, self.line_ends)
        self.memory_storage = trained.options.get("memory_storage", "keys-values")
        self.absolute_positions = trained.options.get("relative_positions") == "none"
        kind, options = STACKS[trained.architecture]
        stack = kind(trained.options_as(options))
        words = trained.options_as(WordOptions)
        self.add(stack, build_word_layers(words, stack.options.decoder_embed_dim, sizes[0], PAD, sizes[-1]))

    @property
    def symbols(self) -> list[str]:
        """The symbols of its inputs, in the order of the tokens."""
        return next(iter(self.dictionaries.values()))

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return next(self.parameters()).device

    def forward(
        self, tokens_TB: Tensor, state: StreamState | None = None, start: int = 0
    ) -> tuple[Tensor, StreamState]:
        """Logits [T, B, V] of the next tokens or of the labels, or log-probabilities of an adaptive softmax; and the
        state that continues these streams.

        Args:
            tokens_TB: T steps of B texts. Each begins with ``</s>``, token 2.
            state: the one after the steps before; None: these are the first ones.
            start: number of steps before; only models without relative positions look at it.
        """
        features_TBD, state = self.stack(self.embed(tokens_TB.t(), start).transpose(0, 1), state)
        return self.logits(features_TBD), state

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without the ``</s>`` before it, as those of an exported tokenizer: words are split into
        pieces if the model's are, and those that it does not know become ``<unk>``.
        """
        return self.vocabulary.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, in whole words."""
        return self.vocabulary.decode(tokens)

    def generate(
        self, prompt: str = "", length: int = 300, temperature: float = 1.0, topk: int = 10, seed: int | None = None
    ) -> str:
        """A text and its continuation by up to ``length`` tokens; see ``sample``.

        Args:
            prompt: the beginning of the text.
        """
        if self.labels or not all(value >= 0 for value in (length, temperature, topk)):  # NaN is not, either
            raise UserError("generate: needs a model without labels, and a length, temperature and top-k of 0 or more")
        tokens = self.encode(prompt)
        new = sample(
            self.reader(len(tokens) + length),
            tokens,
            length=length,
            temperature=temperature,
            topk=topk,
            vocabulary=self.vocabulary,
            seed=seed,
        )
        return self.decode([*tokens, *new])


def build(trained: TrainedModel) -> LanguageModel:
    """A language model in evaluation mode. Its first parameters are random ones, but the process's random numbers stay
    the user's.
    """
    if trained.architecture not in STACKS:
        remedy = f"give one of {', '.join(STACKS)}"
        if trained.translates:
            remedy = "use fairseq-interactive for translation"
        raise trained.error(f"is not a language model of this package; {remedy}")
    with torch.random.fork_rng(devices=[]):
        model = LanguageModel(trained)
    trained.fill(model, PREFIX)
    return model.eval()
