"""Convert a model of fb_fairseq.transformers to a checkpoint of fairseq.

    python -m fb_fairseq import-transformers model --out imported/model.pt

DIR was written by python -m fb_fairseq export, or by save_pretrained after training with transformers. fairseq's
commands evaluate the result, decode with it, and fine-tune it (--finetune-from-model). Its dictionaries are written
beside it.
"""

import json
import os
from typing import List

from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import UserError
from fb_fairseq.files import check_output_file


def read_dictionary(folder: str, symbols_of_model: int, subfolder: str = ""):
    """fairseq's dictionary, of the tokenizer in a folder.

    Raises:
        UserError: there is no tokenizer, or it is not the model's.
    """
    from fairseq.data import Dictionary
    from transformers import AutoTokenizer

    from fb_fairseq.transformers.tokenizers import dictionary_symbols

    path = os.path.join(folder, subfolder)
    if not os.path.isfile(os.path.join(path, "tokenizer.json")):
        raise UserError(f"{path}: has no tokenizer.json; save the tokenizer there, too")
    dictionary = Dictionary()
    for symbol in dictionary_symbols(AutoTokenizer.from_pretrained(path))[dictionary.nspecial :]:
        dictionary.add_symbol(symbol)
    if len(dictionary) != symbols_of_model:
        raise UserError(
            f"{path}: its tokenizer has {len(dictionary)} symbols, its model {symbols_of_model}; give the tokenizer "
            "that belongs to the model"
        )
    return dictionary


def read_configuration(folder: str):
    """The configuration of the model in a folder, and the model's class.

    Raises:
        UserError: the folder has no weights, or is of another package.
    """
    from transformers import AutoConfig

    from fb_fairseq.transformers import FeedbackDecoderConfig, FeedbackDecoderForConditionalGeneration
    from fb_fairseq.transformers.modeling import MODELS

    models = {**MODELS, FeedbackDecoderConfig.model_type: FeedbackDecoderForConditionalGeneration}
    if not os.path.isfile(os.path.join(folder, "config.json")):
        raise UserError(
            f"{folder}: has no config.json; give a folder of python -m fb_fairseq export or save_pretrained"
        )
    missing = missing_files(folder)
    if missing:
        raise UserError(f"{folder}: has no {missing[0]}; give a folder with all weights")
    config = AutoConfig.from_pretrained(folder)
    if config.model_type not in models:
        raise UserError(
            f"{folder}: {config.model_type} is not a model of this package; give one of {', '.join(models)}"
        )
    return config, models[config.model_type]


def missing_files(folder: str) -> List[str]:
    """The files of weights that a folder should have, and has not: ``model.safetensors``, or those of its index."""
    names = ["model.safetensors"]
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.isfile(index):
        with open(index, encoding="utf-8") as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
    return [name for name in names if not os.path.isfile(os.path.join(folder, name))]


def convert(folder: str, out: str) -> None:
    """Write the checkpoint and its dictionaries, and print what was written.

    Raises:
        UserError: the folder holds no model of this package.
    """
    from fb_fairseq import patches  # noqa: F401  before fairseq is used

    # isort: split
    from fb_fairseq.commands.import_original.command import LANGUAGE_MODEL, build_checkpoint, command_line
    from fb_fairseq.commands.import_original.source import Imported
    from fb_fairseq.commands.import_original.symbols import write_dictionary
    from fb_fairseq.tensor_files import save_file
    from fb_fairseq.transformers.card import TARGET_FOLDER

    check_output_file("--out", out)
    config, model_class = read_configuration(folder)
    defaults, training = config.option_defaults(), LANGUAGE_MODEL
    if config.is_encoder_decoder:
        defaults.update(share_all_embeddings=False, decoder_learned_pos=False, max_target_positions=1024)
        target_folder = TARGET_FOLDER if os.path.isdir(os.path.join(folder, TARGET_FOLDER)) else ""
        dictionaries = {
            f"dict.{config.source_lang}.txt": read_dictionary(folder, config.source_vocab_size),
            f"dict.{config.target_lang}.txt": read_dictionary(folder, config.vocab_size, target_folder),
        }
        training = ("--task", "translation", "--criterion", "cross_entropy")
    else:
        dictionaries = {"dict.txt": read_dictionary(folder, config.vocab_size)}
    options = {name: getattr(config, name) for name, default in defaults.items() if getattr(config, name) != default}
    options["arch"] = config.model_type
    if config.model_type != "streaming_lstm_lm":  # which has no ring
        options["memory_storage"] = config.memory_storage
    parameters = dict(model_class.from_pretrained(folder).named_parameters())
    checkpoint = build_checkpoint(folder, Imported(options, parameters), *dictionaries.values(), training=training)
    if config.is_encoder_decoder:
        checkpoint["cfg"]["task"].update(source_lang=config.source_lang, target_lang=config.target_lang)
    paths = {
        write_dictionary(dictionary, os.path.dirname(os.path.abspath(out)), name): dictionary
        for name, dictionary in dictionaries.items()
    }
    save_file(checkpoint, out)
    number = sum(parameter.numel() for parameter in parameters.values())
    print(f"{out}: {number:,} parameters, {' '.join(training[:2])} {' '.join(command_line(options))}")
    for path, dictionary in paths.items():
        print(f"{path}: its dictionary, {len(dictionary)} symbols, for fairseq-preprocess --srcdict or --tgtdict")


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser("import-transformers", description=__doc__)
    parser.add_argument("folder", metavar="DIR", help="folder of the model")
    parser.add_argument("--out", required=True, metavar="FILE.pt", help="fairseq checkpoint to write")
    return parser


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    with parser.one_line_errors():
        convert(args.folder, args.out)
