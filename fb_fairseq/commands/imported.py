"""Write a model as a checkpoint of fairseq, with its dictionaries beside it."""

import argparse
import os
from typing import Any

from fb_fairseq.checksums import DICTIONARIES, dictionary_checksums
from fb_fairseq.errors import UserError, flag
from fb_fairseq.facts import FACTS
from fb_fairseq.files import WRITER, atomic_write
from fb_fairseq.tensor_files import NEW_TRAINING, save_file
from fb_fairseq.trained_model import TrainedModel

LANGUAGE_MODEL = ("--task", "streaming_lm", "--criterion", "lm_loss")
TRANSLATION = ("--task", "translation", "--criterion", "cross_entropy")


def write_checkpoint(command: str, out: str, trained: TrainedModel) -> list[str]:
    """Write a checkpoint, as fairseq's trainer would save it, and its dictionaries. Returns lines that say what was
    written.

    Args:
        command: the one that writes it.
        out: the file. Dictionaries in its folder stay; those of other models are refused.
    """
    folder = os.path.dirname(os.path.abspath(out))
    dictionaries = {os.path.join(folder, name): as_dictionary(symbols) for name, symbols in trained.symbols.items()}
    for path, dictionary in dictionaries.items():
        check_dictionary_file(dictionary, path)
    save_file({WRITER: command, **build_checkpoint(trained, list(dictionaries.values()), folder)}, out)
    lines = [f"{out}: {sum(p.numel() for p in trained.parameters.values()):,} parameters, {trained.architecture}"]
    for path, dictionary in dictionaries.items():
        if not os.path.exists(path):  # the user's own, with the same symbols, has how often each one occurs
            with atomic_write(path) as temporary:
                dictionary.save(temporary)
        lines.append(f"{path}: its dictionary, {len(dictionary)} symbols, for fairseq-preprocess --srcdict, --tgtdict")
    return lines


def build_checkpoint(trained: TrainedModel, dictionaries: list, data: str) -> dict[str, Any]:
    """The content of a checkpoint.

    Args:
        trained: the model.
        dictionaries: fairseq's, that of the inputs first.
        data: their folder.
    """
    from fairseq import models, options
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    import fb_fairseq.models  # noqa: F401  --user-dir does this in fairseq's commands
    import fb_fairseq.tasks  # noqa: F401

    parser = options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, training_arguments(trained)))
    source, target = dictionaries[0], dictionaries[-1]
    task = argparse.Namespace(source_dictionary=source, target_dictionary=target)
    model = models.build_model(cfg.model, task)
    trained.fill(model)
    history = {
        "criterion_name": CRITERION_REGISTRY[cfg.criterion._name].__name__,
        "optimizer_name": "FairseqAdam",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
    cfg = OmegaConf.to_container(cfg)  # of plain values, which it has resolved itself
    cfg["task"].update(data=data, **trained.task)
    return {
        "args": None,
        "cfg": cfg,
        "model": model.state_dict(),
        "criterion": {},
        "optimizer_history": [history],
        "task_state": {},
        "extra_state": {**NEW_TRAINING, DICTIONARIES: dictionary_checksums({"source": source, "target": target})},
        FACTS: trained.facts,
    }


def training_arguments(trained: TrainedModel) -> list[str]:
    """Arguments of fairseq-train, of a training of such a model on data in the folder ""."""
    from fairseq.models import MODEL_DATACLASS_REGISTRY

    line = ["", *(TRANSLATION if trained.translates else LANGUAGE_MODEL), "--optimizer", "adam"]
    known = MODEL_DATACLASS_REGISTRY.get(trained.architecture)
    for name, value in trained.options.items():
        # Language models of all kinds have the same options in a folder, but not in fairseq-train.
        if known is not None and name not in ("arch", *known.__dataclass_fields__):
            continue
        if value is True:
            line.append(flag(name))
        elif value is not False and value is not None:
            line += [flag(name), str(value)]
    return line


def as_dictionary(symbols: list[str]):
    """fairseq's dictionary of symbols, whose first ones are special."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for symbol in symbols[dictionary.nspecial :]:
        dictionary.add_symbol(symbol)
    return dictionary


def check_dictionary_file(dictionary, path: str) -> None:
    """Check that a dictionary's file can be written, and that another model's is not there."""
    broken = [symbol for symbol in dictionary.symbols if "\n" in symbol or "\r" in symbol]
    if broken:
        raise UserError(
            f"{path}: cannot hold the symbol {broken[0]!r}, because fairseq reads one symbol per line; take symbols "
            "with line breaks out of the tokenizer"
        )
    if os.path.exists(path) and type(dictionary).load(path).symbols != dictionary.symbols:
        raise UserError(f"{path}: is the dictionary of another model; give an --out in another folder")
