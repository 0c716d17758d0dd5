"""Convert a model of fb_fairseq.transformers to a checkpoint of fairseq.

    python -m fb_fairseq import-transformers model --out imported/model.pt

DIR was written by python -m fb_fairseq export, or by save_pretrained after training with transformers. fairseq's
commands evaluate the result, decode with it, and fine-tune it (--finetune-from-model). Its dictionaries are written
beside it.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.commands.imported import quiet_transformers
from fb_fairseq.errors import UserError
from fb_fairseq.files import check_output_file

NAME = "import-transformers"
COMPLETE = "the folder of a model that python -m fb_fairseq export or save_pretrained has written"


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Context of reading a file with transformers: whatever it raises becomes one line about this file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # of json, tokenizers, safetensors, huggingface_hub, …
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"{path}: cannot be read ({lines[0]}); give {COMPLETE}") from None


def read_tokenizer(folder: str, symbols_of_model: int) -> tuple[Any, list[str]]:
    """The tokenizer in a folder, and its symbols in the order of their indices."""
    from transformers import AutoTokenizer

    from fb_fairseq.transformers.tokenizers import dictionary_symbols

    if not os.path.isfile(os.path.join(folder, "tokenizer.json")):
        raise UserError(f"{folder}: has no tokenizer.json; save the tokenizer there, too (save_pretrained)")
    with reading(os.path.join(folder, "tokenizer.json")):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        symbols = dictionary_symbols(tokenizer)
    if len(symbols) != symbols_of_model:
        raise UserError(
            f"{folder}: its tokenizer has {len(symbols)} symbols, its model {symbols_of_model}; give the tokenizer "
            "that belongs to the model"
        )
    return tokenizer, symbols


def read_dictionary(folder: str, symbols_of_model: int):
    """fairseq's dictionary, of the tokenizer in a folder."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for symbol in read_tokenizer(folder, symbols_of_model)[1][dictionary.nspecial :]:
        dictionary.add_symbol(symbol)
    return dictionary


def read_model(folder: str):
    """The model in a folder."""
    from fb_fairseq.transformers import FeedbackDecoderConfig, FeedbackDecoderForConditionalGeneration
    from fb_fairseq.transformers.modeling import MODELS

    models = {**MODELS, FeedbackDecoderConfig.model_type: FeedbackDecoderForConditionalGeneration}
    path = os.path.join(folder, "config.json")
    if not os.path.isfile(path):
        raise UserError(f"{folder}: has no config.json; give {COMPLETE}")
    with reading(path), open(path, encoding="utf-8") as file:
        kind = json.load(file).get("model_type")
    if kind not in models:
        raise UserError(f"{path}: {kind} is not a model of this package; give one of {', '.join(models)}")
    missing = missing_files(folder)
    if missing:
        raise UserError(f"{folder}: has no {missing[0]}; give a folder with all weights")
    with reading(path):
        config = models[kind].config_class.from_pretrained(folder)
    with reading(folder), quiet_transformers():
        model, found = models[kind].from_pretrained(
            folder, config=config, output_loading_info=True, ignore_mismatched_sizes=True
        )
    misfits = [name[0] if isinstance(name, (list, tuple)) else name for names in found.values() for name in names]
    if misfits:
        raise UserError(
            f"{folder}: {', '.join(sorted(misfits)[:3])}: the weights are not those of config.json; give {COMPLETE}"
        )
    return model


def missing_files(folder: str) -> list[str]:
    """The files of weights that a folder should have, and has not: ``model.safetensors``, or those of its index."""
    names = ["model.safetensors"]
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.isfile(index):
        with reading(index), open(index, encoding="utf-8") as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
    return [name for name in names if not os.path.isfile(os.path.join(folder, name))]


def read_dictionaries(folder: str, config) -> dict[str, Any]:
    """The dictionaries of a model by the names of their files."""
    from fb_fairseq.transformers.card import TARGET_FOLDER

    if not config.is_encoder_decoder:
        return {"dict.txt": read_dictionary(folder, config.vocab_size)}
    languages = config.source_lang, config.target_lang
    if not all(languages) or languages[0] == languages[1] or any(os.sep in language for language in languages):
        raise UserError(
            f"{os.path.join(folder, 'config.json')}: source_lang {languages[0]!r} and target_lang {languages[1]!r}: "
            "give both languages names there, such as 'de' and 'en'"
        )
    source = target = read_dictionary(folder, config.source_vocab_size)
    target_folder = os.path.join(folder, TARGET_FOLDER)
    joined = config.vocab_size == config.source_vocab_size and not os.path.isdir(target_folder)
    if not (config.share_all_embeddings or joined):
        target = read_dictionary(target_folder, config.vocab_size)
    return {f"dict.{language}.txt": dictionary for language, dictionary in zip(languages, (source, target))}


def convert(folder: str, out: str, overwrite: bool = False) -> None:
    """Write the checkpoint and its dictionaries, and print what was written."""
    from fb_fairseq import patches  # noqa: F401  before fairseq is used

    # isort: split
    from fb_fairseq.commands.imported import (
        LANGUAGE_MODEL,
        Imported,
        build_checkpoint,
        check_dictionary_file,
        command_line,
        write_dictionary,
    )
    from fb_fairseq.tensor_files import WRITER, save_file

    check_output_file("--out", out, NAME.encode(), overwrite=overwrite)
    model = read_model(folder)
    config, training = model.config, LANGUAGE_MODEL
    dictionaries = read_dictionaries(folder, config)
    options = {name: getattr(config, name) for name in config.option_defaults()}
    if config.is_encoder_decoder:
        # All of them: the architecture's defaults are not the configuration's.
        names = ("share_all_embeddings", "decoder_learned_pos", "max_target_positions")
        options.update({name: getattr(config, name) for name in names})
        options = {name: value for name, value in options.items() if value is not None}
        training = ("--task", "translation", "--criterion", "cross_entropy")
    else:
        defaults = config.option_defaults()
        options = {name: value for name, value in options.items() if value != defaults[name]}
    options["arch"] = config.model_type
    if config.model_type != "streaming_lstm_lm":  # which has no ring
        options["memory_storage"] = config.memory_storage
    parameters = dict(model.named_parameters())
    imported = Imported(options, parameters)
    checkpoint = build_checkpoint(folder, imported, *dictionaries.values(), training=training, remedy=COMPLETE)
    if config.is_encoder_decoder:
        checkpoint["cfg"]["task"].update(source_lang=config.source_lang, target_lang=config.target_lang)
    beside = os.path.dirname(os.path.abspath(out))
    paths = {os.path.join(beside, name): dictionary for name, dictionary in dictionaries.items()}
    for path, dictionary in paths.items():
        check_dictionary_file(dictionary, path)
    save_file({WRITER: NAME, **checkpoint}, out)
    for path, dictionary in paths.items():
        write_dictionary(dictionary, path)
    number = sum(parameter.numel() for parameter in parameters.values())
    print(f"{out}: {number:,} parameters, {' '.join(training[:2])} {' '.join(command_line(options))}")
    for path, dictionary in paths.items():
        print(f"{path}: its dictionary, {len(dictionary)} symbols, for fairseq-preprocess --srcdict or --tgtdict")


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser(NAME, description=__doc__)
    parser.add_argument("folder", metavar="DIR", help="folder of the model")
    parser.add_argument("--out", required=True, metavar="FILE.pt", help="fairseq checkpoint to write")
    add_overwrite(parser)
    return parser


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    with parser.one_line_errors():
        convert(args.folder, args.out, args.overwrite)
