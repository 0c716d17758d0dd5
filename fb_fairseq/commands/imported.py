"""A model from elsewhere as a checkpoint of fairseq, with its dictionary."""

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fb_fairseq.checksums import DICTIONARIES, dictionary_checksums
from fb_fairseq.errors import UserError, flag
from fb_fairseq.files import WRITER, atomic_write
from fb_fairseq.tensor_files import NEW_TRAINING, save_file

LANGUAGE_MODEL = ("--task", "streaming_lm", "--criterion", "lm_loss")


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Context in which transformers prints nothing but errors that it raises."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@dataclass
class Imported:
    """A part of a model, as this package has it."""

    options: dict[str, object]  # options of fairseq-train by Python name (``decoder_layers``); for layers with ``arch``
    # tensors by their name in the fairseq model's state dict (``decoder.layers.0.fc1.weight``)
    parameters: dict[str, Tensor]

    def update(self, other: "Imported") -> None:
        """Add another part's options and parameters."""
        self.options.update(other.options)
        self.parameters.update(other.parameters)


def command_line(options: dict[str, object]) -> list[str]:
    """A model's options as arguments of fairseq-train."""
    line = []
    for name, value in options.items():
        if value is not False:
            line += [flag(name)] + ([] if value is True else [str(value)])
    return line


def build_model(path: str, imported: Imported, cfg, source, target, remedy: str) -> torch.nn.Module:
    """Build the fairseq model that ``cfg`` describes, with the imported parameters. ``source``, ``target``: the
    dictionaries; those of a language model are the same. ``remedy``: what to give, if the parameters are not those of
    this model."""
    from fairseq import models

    from fb_fairseq.models.checkpoints import NO_PARAMETERS

    model = models.build_model(cfg.model, argparse.Namespace(source_dictionary=source, target_dictionary=target))
    found = imported.parameters
    expected = {name: x for name, x in model.named_parameters() if not NO_PARAMETERS.match(name)}
    misfits = [name for name in expected if name not in found or found[name].shape != expected[name].shape]
    misfits += [name for name in found if name not in expected]
    if misfits:
        raise UserError(f"{path}: its parameters do not fit together ({', '.join(misfits[:3])}); give {remedy}")
    with torch.no_grad():
        for name, parameter in expected.items():
            parameter.copy_(found[name])
    return model


def build_checkpoint(
    path: str, imported: Imported, source, target=None, *, remedy: str, training: Sequence[str] = LANGUAGE_MODEL
) -> dict[str, object]:
    """A fairseq checkpoint of the model that was imported from ``path``, as fairseq's trainer would save it.

    Args:
        source: the dictionary.
        target: that of a translation model's target language.
        remedy: what to give, if the parameters contradict each other.
        training: task and criterion, as arguments of fairseq-train."""
    from fairseq import options
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    import fb_fairseq.models  # noqa: F401  --user-dir does this in fairseq's commands
    import fb_fairseq.tasks  # noqa: F401

    line = ["", *training, "--optimizer", "adam", *command_line(imported.options)]  # "" is the data folder
    args = options.parse_args_and_arch(options.get_training_parser(), line)
    cfg = convert_namespace_to_omegaconf(args)
    dictionaries = {"source": source, "target": target or source}
    model = build_model(path, imported, cfg, *dictionaries.values(), remedy)
    history = {
        "criterion_name": CRITERION_REGISTRY[cfg.criterion._name].__name__,
        "optimizer_name": "FairseqAdam",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
    return {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": model.state_dict(),
        "criterion": {},
        "optimizer_history": [history],
        "task_state": {},
        "extra_state": {**NEW_TRAINING, DICTIONARIES: dictionary_checksums(dictionaries)},
    }


def check_dictionary_file(dictionary, path: str) -> bool:
    """Check that a dictionary's file can be written. Returns whether it is there already."""
    broken = [symbol for symbol in dictionary.symbols if "\n" in symbol or "\r" in symbol]
    if broken:
        raise UserError(
            f"{path}: cannot hold the symbol {broken[0]!r}, because fairseq reads one symbol per line; take symbols "
            "with line breaks out of the tokenizer"
        )
    if not os.path.exists(path):
        return False
    with open(path, encoding="utf-8", errors="replace") as file:
        present = [line.rpartition(" ")[0] or line.strip() for line in file]
    if present != dictionary.symbols[dictionary.nspecial :]:
        raise UserError(f"{path}: is the dictionary of another model; give an --out in another folder")
    return True


def write_dictionary(dictionary, path: str) -> None:
    """Write a dictionary, with which data can be prepared (``fairseq-preprocess --srcdict``)."""
    if check_dictionary_file(dictionary, path):
        return
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        special = dictionary.nspecial
        for symbol, count in zip(dictionary.symbols[special:], dictionary.count[special:]):
            file.write(f"{symbol} {count}\n")


def write_checkpoint(
    name: str,
    out: str,
    checkpoint: dict[str, object],
    imported: Imported,
    dictionaries: dict[str, Any],
    training: Sequence[str] = LANGUAGE_MODEL,
) -> list[str]:
    """Write a checkpoint, and its dictionaries beside it. Returns lines that say what was written.

    Args:
        name: of the command.
        dictionaries: by the names of their files.
        training: see ``build_checkpoint``."""
    beside = os.path.dirname(os.path.abspath(out))
    paths = {os.path.join(beside, file): dictionary for file, dictionary in dictionaries.items()}
    for path, dictionary in paths.items():
        check_dictionary_file(dictionary, path)
    save_file({WRITER: name, **checkpoint}, out)
    for path, dictionary in paths.items():
        write_dictionary(dictionary, path)
    number = sum(parameter.numel() for parameter in imported.parameters.values())
    lines = [f"{out}: {number:,} parameters, {' '.join([*training[:2], *command_line(imported.options)])}"]
    how = "for fairseq-preprocess --srcdict or --tgtdict"
    return lines + [f"{path}: its dictionary, {len(one)} symbols, {how}" for path, one in paths.items()]
