"""Convert a model of fb_fairseq.transformers to a checkpoint of fairseq.

    python -m fb_fairseq import-transformers model --out imported/model.pt

DIR was written by python -m fb_fairseq export, or by save_pretrained after training with transformers. fairseq's
commands evaluate the result, continue prompts with it, and fine-tune it (--finetune-from-model). dict.txt is written
beside it.
"""

import os

from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import UserError
from fb_fairseq.files import check_output_file


def convert(folder: str, out: str) -> None:
    """Write the checkpoint and ``dict.txt``, and print what was written.

    Raises:
        UserError: the folder holds no model of this package.
    """
    from fb_fairseq import patches  # noqa: F401  before fairseq is used

    # isort: split
    from fairseq.data import Dictionary
    from transformers import AutoConfig, AutoTokenizer

    from fb_fairseq.commands.import_original.command import build_checkpoint, command_line
    from fb_fairseq.commands.import_original.source import Imported
    from fb_fairseq.commands.import_original.symbols import write_dictionary
    from fb_fairseq.tensor_files import save_file
    from fb_fairseq.transformers.modeling import MODELS
    from fb_fairseq.transformers.tokenizers import dictionary_symbols

    check_output_file("--out", out)
    if not os.path.isfile(os.path.join(folder, "config.json")):
        raise UserError(
            f"{folder}: has no config.json; give a folder of python -m fb_fairseq export or save_pretrained"
        )
    if not any(name.startswith("model") and name.endswith(".safetensors") for name in os.listdir(folder)):
        raise UserError(f"{folder}: has no model.safetensors; give a folder with the weights, too")
    config = AutoConfig.from_pretrained(folder)
    if config.model_type not in MODELS:
        raise UserError(
            f"{folder}: {config.model_type} is not a model of this package; give one of {', '.join(MODELS)}"
        )
    model = MODELS[config.model_type].from_pretrained(folder)
    symbols = dictionary_symbols(AutoTokenizer.from_pretrained(folder))
    dictionary = Dictionary()
    for symbol in symbols[dictionary.nspecial :]:
        dictionary.add_symbol(symbol)
    if len(dictionary) != config.vocab_size:
        raise UserError(
            f"{folder}: its tokenizer has {len(dictionary)} symbols, its model {config.vocab_size}; give the tokenizer "
            "that belongs to the model"
        )
    defaults = config.option_defaults()
    options = {name: getattr(config, name) for name, default in defaults.items() if getattr(config, name) != default}
    options["arch"] = config.model_type
    if hasattr(config, "attention_span"):  # an LSTM has no ring
        options["memory_storage"] = config.memory_storage
    parameters = dict(model.named_parameters())
    checkpoint = build_checkpoint(folder, Imported(options, parameters), dictionary)
    dictionary_path = write_dictionary(dictionary, os.path.dirname(os.path.abspath(out)))
    save_file(checkpoint, out)
    number = sum(parameter.numel() for parameter in parameters.values())
    print(f"{out}: {number:,} parameters, --task streaming_lm {' '.join(command_line(options))}")
    print(f"{dictionary_path}: its dictionary, {len(dictionary)} symbols, for fairseq-preprocess --srcdict")


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
