"""A language model in plain PyTorch: its parameters, its symbols, and generation token by token."""

import codecs
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from fb_fairseq import byte_codec
from fb_fairseq.checksums import WEIGHTS
from fb_fairseq.errors import UserError
from fb_fairseq.meaning import EOS, PAD, UNK, check_former, never_drawn
from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, StreamState, TransformerOptions
from fb_fairseq.modules.lstm import LSTM, LSTMOptions
from fb_fairseq.modules.positions import sinusoidal_positions
from fb_fairseq.modules.stack import StackHolder
from fb_fairseq.modules.words import WordOptions, build_word_layers
from fb_fairseq.ops.feedback.loops import AUTO, REFERENCE

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]  # fairseq's special symbols, by index
LOWEST_TEMPERATURE = 1e-30  # logits that are divided by less overflow
MANY = 1000  # steps for which it is worth while to compile a step loop
STACKS = {
    "feedback_transformer_lm": (FeedbackTransformer, TransformerOptions),
    "relative_transformer_lm": (RelativeTransformer, TransformerOptions),
    "all_attention_lm": (AllAttention, TransformerOptions),
    "streaming_lstm_lm": (LSTM, LSTMOptions),
}
PREFIX = "decoder."  # of the parameters' names in files
COMPLETE = "the folder of a model that python -m fb_fairseq export or save_pretrained has written"


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
        config: the content of config.json.
        symbols: the symbols of its dictionary, in the order of the tokens; None: pieces of words, which take the
            tokenizer of transformers.
        labels: whether it predicts a label of each token, which has the token's name, instead of the next token."""

    def __init__(self, config: dict[str, Any], symbols: list[str] | None = None):
        super().__init__()
        self.config, self.symbols, self.labels = config, symbols, bool(config.get("labels"))
        self.memory_storage = config.get("memory_storage", "keys-values")
        stack, options = STACKS[config["model_type"]]
        self.hold(stack(_options(options, config)))
        width = self.stack.options.decoder_embed_dim
        words = build_word_layers(_options(WordOptions, config), width, config["vocab_size"], PAD)
        self.embed_tokens, self.embed_scale = words.embed_tokens, words.embed_scale
        self.adaptive_softmax, self.output_projection = words.adaptive_softmax, words.output_projection

    def embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Embeddings [B, T, D] of tokens [B, T], of which the first is at position ``start``."""
        x_BTD = self.embed_tokens(tokens) * self.embed_scale
        if self.config.get("relative_positions") == "none":
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


def read_weights(path: str) -> dict[str, Tensor]:
    """The parameters in a folder, in single precision: of ``model.safetensors`` or, if there is none, of the files of
    its index. So does transformers."""
    names, index = [WEIGHTS], f"{WEIGHTS}.index.json"
    if not os.path.isfile(os.path.join(path, WEIGHTS)) and os.path.isfile(os.path.join(path, index)):
        with reading(os.path.join(path, index)):
            names = sorted(set(read_json(path, index)["weight_map"].values()))
            outside = [name for name in names if os.path.basename(name) != name]
        if outside:
            raise UserError(
                f"{os.path.join(path, index)}: names {outside[0]}, which is no file beside it; give an intact copy"
            )
    missing = [name for name in names if not os.path.isfile(os.path.join(path, name))]
    if missing:
        raise UserError(f"{path}: has no {missing[0]}; give a folder with all weights")
    with reading(path):
        return {name: x.float() for file in names for name, x in load_file(os.path.join(path, file)).items()}


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


def _options(kind: type, config: dict[str, Any]) -> Any:
    return kind(**{field.name: config[field.name] for field in fields(kind) if field.name in config})


def read_json(path: str, name: str) -> dict[str, Any]:
    """A JSON file in the folder of a model."""
    file = os.path.join(path, name)
    if not os.path.isfile(file):
        raise UserError(f"{path}: has no {name}; give {COMPLETE}")
    with reading(file), open(file, encoding="utf-8") as opened:
        return json.load(opened)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Context of reading a file of a model: whatever it raises becomes one line about this file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # of json, tokenizers, safetensors, huggingface_hub, …
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"{path}: cannot be read ({lines[0]}); give {COMPLETE}") from None


def _symbols(tokenizer: dict[str, Any]) -> list[str] | None:
    """The symbols of a tokenizer that an export has written; None: those of subword-nmt."""
    model = tokenizer["model"]
    if model["type"] == "BPE" and not model["merges"]:
        return [*SPECIAL, *byte_codec.SYMBOLS]
    return sorted(model["vocab"], key=model["vocab"].get) if model["type"] == "WordLevel" else None


def load_folder(path: str) -> LanguageModel:
    """See ``fb_fairseq.pretrained.load``."""
    config = read_json(path, "config.json")
    kind = config.get("model_type")
    if kind not in STACKS:
        is_other = kind != "feedback_decoder"
        what = f"config.json: {kind} is not a model of this package" if is_other else "is a translation model"
        raise UserError(f"{path}: {what}; give a language model")
    check_former(os.path.join(path, "config.json"), config)
    found = {name.removeprefix(PREFIX): x for name, x in read_weights(path).items()}
    # Its first parameters are random ones, but the process's random numbers are the user's.
    with reading(path), torch.random.fork_rng(devices=[]):
        model = LanguageModel(config, _symbols(read_json(path, "tokenizer.json")))
    if model.symbols is not None and len(model.symbols) != config["vocab_size"]:
        raise UserError(
            f"{path}: its tokenizer has {len(model.symbols)} symbols, its model {config['vocab_size']}; give the "
            "tokenizer that belongs to the model"
        )
    expected = dict(model.named_parameters())
    misfits = {name for name, p in expected.items() if name not in found or found[name].shape != p.shape}
    misfits |= found.keys() - model.state_dict().keys()
    if misfits:
        names = ", ".join(sorted(misfits)[:3])
        raise UserError(f"{path}: {names}: the weights are not those of config.json; give {COMPLETE}")
    for name, parameter in expected.items():
        parameter.data = found[name]
    return model.eval()
