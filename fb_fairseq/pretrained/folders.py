"""Folders that ``export`` or ``save_pretrained`` has written, as ``TrainedModel``, without transformers."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from fb_fairseq import byte_codec
from fb_fairseq.errors import UserError, debugging, explain
from fb_fairseq.facts import WEIGHTS, facts_in
from fb_fairseq.modules import TransformerOptions
from fb_fairseq.modules.encoder import EncoderOptions
from fb_fairseq.modules.language_model import STACKS
from fb_fairseq.modules.words import WordOptions
from fb_fairseq.ops.log import first_line
from fb_fairseq.symbols import END_OF_WORD, SEPARATOR, SPECIAL
from fb_fairseq.trained_model import PREFIX, TRANSLATOR, TrainedModel

COMPLETE = "the folder of a model that fb-fairseq export or save_pretrained has written"
TARGET_FOLDER = "target"  # of a translation model's second tokenizer
OPTIONS = {
    **{kind: (options, WordOptions) for kind, (_, options) in STACKS.items()},
    TRANSLATOR: (EncoderOptions, TransformerOptions, WordOptions),
}
# Of the model, beside those of the classes; of its task.
FURTHER_OPTIONS = ("memory_storage", "share_all_embeddings", "decoder_learned_pos", "max_target_positions")
TASK_OPTIONS = ("labels", "separate_sequences", "omit_eos", "source_lang", "target_lang")


def read_folder(path: str) -> TrainedModel:
    """Read a model from a folder, its parameters in single precision."""
    config = read_json(path, "config.json")
    file = os.path.join(path, "config.json")
    with reading(file):
        kind = config.get("model_type")
        if kind not in OPTIONS:
            raise UserError(f"{file}: {kind} is not a model of this package; give one of {', '.join(OPTIONS)}")
        options = {"arch": kind, **options_in(config, OPTIONS[kind])}
    options.update({name: config[name] for name in FURTHER_OPTIONS if config.get(name) is not None})
    if kind == "streaming_lstm_lm":  # the configurations of all models have it, but an LSTM has no memory
        options.pop("memory_storage", None)
    parameters = read_weights(path)
    if kind != TRANSLATOR:
        parameters = {f"{PREFIX}{name.removeprefix(PREFIX)}": value for name, value in parameters.items()}
    task = {name: config[name] for name in TASK_OPTIONS if config.get(name) is not None}
    trained = TrainedModel(path, options, parameters, task, facts=facts_in(path))
    add_symbols(trained, config)
    return trained


def options_in(config: dict[str, Any], kinds: tuple[type, ...]) -> dict[str, Any]:
    """The options in the content of config.json, checked, and with the values that they have today."""
    options: dict[str, Any] = {}
    for kind in kinds:
        known = {field.name: config[field.name] for field in fields(kind) if config.get(field.name) is not None}
        made = kind(**known)
        options.update({name: getattr(made, name) for name in known})
    return options


def add_symbols(trained: TrainedModel, config: dict[str, Any]) -> None:
    """Read the dictionaries of a model in a folder from its tokenizers, and whether words are split, from the last one
    (of the outputs). ``config``: the content of config.json.
    """
    of_targets = os.path.join(trained.path, TARGET_FOLDER)
    size = config.get("vocab_size")
    inputs = (trained.path, size)
    outputs = inputs
    if trained.translates:
        check_languages(trained)
        inputs = (trained.path, config.get("source_vocab_size"))
        if os.path.isdir(of_targets) and not config.get("share_all_embeddings"):
            outputs = (of_targets, size)
    for name, (folder, expected) in zip(trained.dictionary_names(), (inputs, outputs)):
        symbols, trained.splits_words = read_symbols(folder)
        if len(symbols) != expected:
            raise UserError(
                f"{folder}: its tokenizer has {len(symbols)} symbols, its model {expected}; give the tokenizer that "
                "belongs to the model"
            )
        trained.symbols[name] = symbols


def check_languages(trained: TrainedModel) -> None:
    """Check that the names of a translation model's languages are two, from which names of files can be made."""
    languages = [str(trained.task.get(side) or "") for side in ("source_lang", "target_lang")]
    valid = [re.fullmatch(r"[\w.-]*\w", language) for language in languages]
    if not all(valid) or languages[0] == languages[1]:
        raise UserError(
            f"{os.path.join(trained.path, 'config.json')}: source_lang {languages[0]!r} and target_lang "
            f"{languages[1]!r}: give both languages names there, such as 'de' and 'en'"
        )


def read_symbols(folder: str) -> tuple[list[str], bool]:
    """The symbols of the dictionary that a tokenizer was made of, in the order of the tokens; and whether the tokenizer
    splits words into pieces.
    """
    content = read_json(folder, "tokenizer.json")
    with reading(os.path.join(folder, "tokenizer.json")):
        model = content["model"]
        names = sorted(model["vocab"], key=model["vocab"].get)
        splits = model["type"] == "BPE" and model["end_of_word_suffix"] == END_OF_WORD
        is_words = model["type"] == "WordLevel"
        if names[: len(SPECIAL)] != SPECIAL or not (splits or is_words or len(names) == len(SPECIAL) + 256):
            raise UserError("was not made from a fairseq dictionary; give the one that was exported with the model")
    if splits:
        return [symbol_of_piece(name) for name in names], True
    return names if is_words else [*SPECIAL, *byte_codec.SYMBOLS], False


def symbol_of_piece(name: str) -> str:
    """The symbol in a dictionary of a piece in a tokenizer: ``th@@`` of ``th``, ``th`` of ``th</w>``."""
    if name in SPECIAL:
        return name
    return name.removesuffix(END_OF_WORD) if name.endswith(END_OF_WORD) else name + SEPARATOR


def read_weights(path: str) -> dict[str, Tensor]:
    """The parameters in a folder, in single precision."""
    file = os.path.join(path, WEIGHTS)
    if not os.path.isfile(file):
        raise UserError(f"{path}: has no {WEIGHTS}; give a folder with all weights in this file")
    with reading(path):
        return {name: x.float() for name, x in load_file(file).items()}


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
        raise error if str(error).startswith(path) else UserError(f"{path}: {error}") from None
    except Exception as error:  # of json, safetensors, options that do not fit, …
        if explain(error) is not None or debugging():
            raise
        raise UserError(f"{path}: cannot be read ({first_line(error)}); give {COMPLETE}") from None
