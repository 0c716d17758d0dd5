"""Trained models that come with the package, in plain PyTorch: neither fairseq nor transformers is needed.

    model = load("python")
    print(model.generate("def main(", length=200, seed=1))
    logits_TBV, state = model(tokens_TB)

    python/   continues Python code, byte by byte
    a5/       keeps track of a product of elements of the group A5: gives each element a label, the product so far

Each folder is as ``python -m fb_fairseq export`` writes it; README.md in it says how the model was trained, and what it
can do. text.py has what makes texts of tokens.
"""

import json
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from fb_fairseq import byte_codec
from fb_fairseq.checksums import check_weights
from fb_fairseq.errors import UserError
from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, StreamState, TransformerOptions
from fb_fairseq.modules.lstm import LSTM, LSTMOptions
from fb_fairseq.modules.positions import sinusoidal_positions
from fb_fairseq.modules.stack import StackHolder
from fb_fairseq.modules.words import WordOptions, build_word_layers
from fb_fairseq.pretrained.text import PAD, SPECIAL, decoder, encode, of_bytes, sample

NAMES = ("python", "a5")
STACKS = {
    "feedback_transformer_lm": (FeedbackTransformer, TransformerOptions),
    "relative_transformer_lm": (RelativeTransformer, TransformerOptions),
    "all_attention_lm": (AllAttention, TransformerOptions),
    "streaming_lstm_lm": (LSTM, LSTMOptions),
}
PREFIX = "decoder."  # of the parameters' names in files
COMPLETE = "the folder of a model that python -m fb_fairseq export or save_pretrained has written"


def folder(name: str) -> str:
    """The folder of a model that comes with the package."""
    if name not in NAMES:
        raise UserError(f"{name}: no such model; give {' or '.join(NAMES)}")
    return os.path.join(os.path.dirname(__file__), name)


def find(path: str) -> str:
    """A path, or the folder of the model of this name. A file or an exported model in the current folder comes first."""
    own = os.path.isfile(path) or os.path.isfile(os.path.join(path, "config.json"))
    return folder(path) if path in NAMES and not own else path


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

    def output(self, features: Tensor) -> Tensor:
        """Logits; of an adaptive softmax log-probabilities."""
        if self.adaptive_softmax is not None:
            return self.adaptive_softmax.get_log_prob(features, None)
        return self.output_projection(features)

    def forward(
        self, tokens_TB: Tensor, state: StreamState | None = None, start: int = 0
    ) -> tuple[Tensor, StreamState]:
        """Logits [T, B, V] of the next tokens, or of the labels, and the state that continues these streams.

        Args:
            tokens_TB: T steps of B texts. Each begins with ``</s>``, token 2.
            state: the one after the steps before; None: these are the first ones.
            start: number of steps before; only models without relative positions look at it."""
        features_TBD, state = self.stack(self.embed(tokens_TB.t(), start).transpose(0, 1), state)
        return self.output(features_TBD), state

    def reader(self) -> Callable[[int], Tensor]:
        """A function that reads one token after the other, and gives the log-probabilities [V] of the next one. Its
        memory has a constant size."""
        ring, device = self.stack.new_ring(), self.embed_tokens.weight.device
        position = 0

        @torch.no_grad()
        def read(token: int) -> Tensor:
            nonlocal position
            x_BD = self.embed(torch.tensor([[token]], device=device), position)[:, 0]
            position += 1
            return self.output(self.stack.run_step(x_BD, ring)).float().log_softmax(-1)[0]

        return read

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without the ``</s>`` before it."""
        return encode(byte_codec.escape(text.encode()) if of_bytes(self.symbols) else text, self.symbols, "text")

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return "".join(map(decoder(self.symbols), tokens))

    def generate(
        self, prompt: str = "", length: int = 300, temperature: float = 1.0, topk: int = 10, seed: int | None = None
    ) -> str:
        """A text and its continuation by up to ``length`` tokens; see ``fb_fairseq.pretrained.text.sample``.

        Args:
            prompt: the beginning of the text.
            seed: for the same text again; None: a new one each time."""
        if seed is not None:
            torch.manual_seed(seed)
        tokens = self.encode(prompt)
        new = sample(self.reader(), tokens, length, temperature, topk, of_bytes(self.symbols))
        return self.decode([*tokens, *new])


def weights(path: str) -> list[str]:
    """The files of a model's weights in a folder: ``model.safetensors``, or those of its index."""
    names = ["model.safetensors"]
    if os.path.isfile(os.path.join(path, f"{names[0]}.index.json")):
        names = sorted(set(read_json(path, f"{names[0]}.index.json")["weight_map"].values()))
    missing = [name for name in names if not os.path.isfile(os.path.join(path, name))]
    if missing:
        raise UserError(f"{path}: has no {missing[0]}; give a folder with all weights")
    return [os.path.join(path, name) for name in names]


def _options(kind: type, config: dict[str, Any]) -> Any:
    return kind(**{field.name: config[field.name] for field in fields(kind) if field.name in config})


def read_json(path: str, name: str) -> dict[str, Any]:
    """A JSON file in the folder of a model."""
    file = os.path.join(path, name)
    if not os.path.isfile(file):
        raise UserError(f"{path}: has no {name}; give {COMPLETE}")
    try:
        with open(file, encoding="utf-8") as opened:
            return json.load(opened)
    except ValueError as error:
        raise UserError(f"{file}: cannot be read ({error}); give {COMPLETE}") from None


def _symbols(tokenizer: dict[str, Any]) -> list[str] | None:
    """The symbols of a tokenizer that an export has written; None: those of subword-nmt."""
    model = tokenizer["model"]
    if model["type"] == "BPE" and not model["merges"]:
        return [*SPECIAL, *byte_codec.SYMBOLS]
    return sorted(model["vocab"], key=model["vocab"].get) if model["type"] == "WordLevel" else None


def check_misfits(path: str, names: Collection[str]) -> None:
    """Check that no parameters are missing, in excess or of another shape. ``names``: those that are."""
    if names:
        raise UserError(
            f"{path}: {', '.join(sorted(names)[:3])}: the weights are not those of config.json; give {COMPLETE}"
        )


def load(name: str) -> LanguageModel:
    """A language model in evaluation mode, its parameters in single precision.

    ``name``: one of ``NAMES``, or a folder that ``python -m fb_fairseq export`` has written."""
    path = find(name)
    config = read_json(path, "config.json")
    if config.get("model_type") not in STACKS:
        what = "is a translation model" if config.get("is_encoder_decoder") else "is no model of this package"
        raise UserError(f"{path}: {what}; give a language model")
    files = weights(path)
    check_weights(path)
    try:
        model = LanguageModel(config, _symbols(read_json(path, "tokenizer.json")))
        found = {name.removeprefix(PREFIX): x.float() for file in files for name, x in load_file(file).items()}
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # of json, safetensors, or options of another type
        raise UserError(f"{path}: cannot be read ({str(error).partition(chr(10))[0]}); give {COMPLETE}") from None
    if model.symbols is not None and len(model.symbols) != config["vocab_size"]:
        raise UserError(
            f"{path}: its tokenizer has {len(model.symbols)} symbols, its model {config['vocab_size']}; give the "
            "tokenizer that belongs to the model"
        )
    expected = dict(model.named_parameters())
    misfits = {name for name, p in expected.items() if name not in found or found[name].shape != p.shape}
    check_misfits(path, misfits | (found.keys() - model.state_dict().keys()))
    for name, parameter in expected.items():
        parameter.data = found[name]
    return model.eval()


def load_alone(name: str, data: str | None) -> LanguageModel:
    """As ``load``, for a command whose ``--data`` must not be given."""
    if data is not None:
        raise UserError(f"--data {data}: has no effect, because {name} has its own tokenizer; leave it out")
    return load(name)
