"""Convert a model of fb_fairseq.transformers to a checkpoint of fairseq.

    python -m fb_fairseq import-transformers model --out imported/model.pt

DIR was written by python -m fb_fairseq export, or by save_pretrained after training with transformers. fairseq's
commands evaluate the result, decode with it, and fine-tune it (--finetune-from-model). Its dictionaries are written
beside it.
"""

import os
from dataclasses import fields
from typing import Any, NamedTuple

from fb_fairseq import pretrained
from fb_fairseq.checksums import facts_in
from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.commands.imported import LANGUAGE_MODEL, Imported, build_checkpoint, write_checkpoint
from fb_fairseq.errors import UserError
from fb_fairseq.facts import FACTS
from fb_fairseq.files import check_output_file
from fb_fairseq.modules.words import WordOptions
from fb_fairseq.pretrained.model import COMPLETE, PREFIX, STACKS, read_json, read_weights, reading

NAME = "import-transformers"


class ReadModel(NamedTuple):
    """A model in a folder, as fairseq has it."""

    imported: Imported
    dictionaries: dict[str, Any]  # by the names of their files; the source's first
    training: tuple[str, ...]  # its task and criterion, as arguments of fairseq-train
    task: dict[str, Any]  # further options of its task


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


def as_dictionary(symbols: list[str]):
    """fairseq's dictionary of symbols."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for symbol in symbols[dictionary.nspecial :]:
        dictionary.add_symbol(symbol)
    return dictionary


def read_language_model(folder: str) -> ReadModel:
    """A language model in a folder. Only one of subwords needs transformers."""
    model = pretrained.load(folder)
    config, symbols = model.config, model.symbols
    kinds = STACKS[config["model_type"]][1], WordOptions
    defaults = {field.name: field.default for kind in kinds for field in fields(kind)}
    options = {name: config[name] for name, default in defaults.items() if config.get(name, default) != default}
    options["arch"] = config["model_type"]
    if "memory_storage" in config and config["model_type"] != "streaming_lstm_lm":  # which has no ring
        options["memory_storage"] = config["memory_storage"]
    parameters = {f"{PREFIX}{name}": value for name, value in model.named_parameters()}
    dictionary = as_dictionary(symbols or read_tokenizer(folder, config["vocab_size"])[1])
    names = ("dict.input.txt", "dict.label.txt") if model.labels else ("dict.txt",)
    separate = config.get("separate_sequences", model.labels)  # of earlier versions, only trackers had labels
    task = {"labels": model.labels, "separate_sequences": bool(separate), "omit_eos": bool(config.get("omit_eos"))}
    return ReadModel(Imported(options, parameters), dict.fromkeys(names, dictionary), LANGUAGE_MODEL, task)


def read_translation_model(folder: str) -> ReadModel:
    """A translation model in a folder, by transformers."""
    from fb_fairseq.transformers import FeedbackDecoderConfig

    with reading(os.path.join(folder, "config.json")):
        config = FeedbackDecoderConfig.from_pretrained(folder)
    parameters = read_weights(folder)
    # All options: the architecture's defaults are not the configuration's.
    names = (*config.option_defaults(), "share_all_embeddings", "decoder_learned_pos", "max_target_positions")
    options = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    options.update(arch=config.model_type, memory_storage=config.memory_storage)
    training = ("--task", "translation", "--criterion", "cross_entropy")
    languages = dict(source_lang=config.source_lang, target_lang=config.target_lang)
    return ReadModel(Imported(options, parameters), read_dictionaries(folder, config), training, languages)


def read_dictionaries(folder: str, config) -> dict[str, Any]:
    """The dictionaries of a translation model by the names of their files."""
    from fb_fairseq.transformers.card import TARGET_FOLDER

    languages = config.source_lang, config.target_lang
    is_name = [language and os.path.basename(language) == language and language.isprintable() for language in languages]
    if not all(is_name) or languages[0] == languages[1]:
        raise UserError(
            f"{os.path.join(folder, 'config.json')}: source_lang {languages[0]!r} and target_lang {languages[1]!r}: "
            "give both languages names there, such as 'de' and 'en'"
        )
    source = target = as_dictionary(read_tokenizer(folder, config.source_vocab_size)[1])
    target_folder = os.path.join(folder, TARGET_FOLDER)
    joined = config.vocab_size == config.source_vocab_size and not os.path.isdir(target_folder)
    if not (config.share_all_embeddings or joined):
        target = as_dictionary(read_tokenizer(target_folder, config.vocab_size)[1])
    return {f"dict.{language}.txt": dictionary for language, dictionary in zip(languages, (source, target))}


def convert(folder: str, out: str, overwrite: bool = False) -> list[str]:
    """Write the checkpoint and its dictionaries. Returns lines that say what was written."""
    from fb_fairseq import patches  # noqa: F401  before fairseq is used

    check_output_file("--out", out, NAME, overwrite)
    folder = pretrained.find(folder)
    translates = read_json(folder, "config.json").get("model_type") == "feedback_decoder"
    model = (read_translation_model if translates else read_language_model)(folder)
    dictionaries = model.dictionaries
    checkpoint = build_checkpoint(
        folder, model.imported, *dictionaries.values(), training=model.training, remedy=COMPLETE
    )
    checkpoint[FACTS] = facts_in(folder)
    checkpoint["cfg"]["task"].update(data=os.path.dirname(os.path.abspath(out)), **model.task)
    return write_checkpoint(NAME, out, checkpoint, model.imported, dictionaries, model.training)


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
        lines = convert(args.folder, args.out, args.overwrite)
    print(*lines, sep="\n")
