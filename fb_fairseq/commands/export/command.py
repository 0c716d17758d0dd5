"""Write a trained model for Hugging Face transformers.

    fb-fairseq export checkpoints/checkpoint_best.pt --to model
    fb-fairseq export checkpoints/checkpoint_best.pt --to model --data WikiText-103 --license cc-by-4.0

DIR gets config.json, model.safetensors, the files of a tokenizer, and README.md, a model card. fairseq is not needed to
load it: import fb_fairseq.transformers, then use AutoModelForCausalLM (for translation AutoModelForSeq2SeqLM) and
AutoTokenizer.
"""

from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.commands.export.models import write_folder
from fb_fairseq.commands.read_model import read_model
from fb_fairseq.errors import UserError
from fb_fairseq.facts import TEXTS
from fb_fairseq.folders import check_own_folder
from fb_fairseq.tensor_files import using

NAME = "export"
DTYPES = ("bfloat16", "float16", "float32")


def export(args) -> list[str]:
    """Write the model that the options name. Returns the names of its files."""
    check_own_folder("--to", args.to, NAME, args.overwrite)
    notes = {}
    for note in args.note:
        name, _, text = note.partition("=")
        if not (name and text):
            raise UserError(f"--note {note}: give NAME=TEXT")
        notes[name] = text
    facts = {name: getattr(args, name) for name in TEXTS if getattr(args, name)}
    trained = read_model(args.checkpoint, args.dict, args.source_lang, args.target_lang)
    if trained.splits_words:
        raise UserError(f"{args.checkpoint}: has no codes of its subwords; give its checkpoint with --bpe-codes")
    notes = {**dict(trained.facts.get("notes", ())), **notes}
    trained.facts.update(facts, notes=list(notes.items()))
    with using(args.checkpoint):
        return write_folder(NAME, args.to, trained, codes=args.bpe_codes, overwrite=args.overwrite, dtype=args.dtype)


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser(NAME, description=__doc__)
    parser.add_argument("checkpoint", help="checkpoint of a language model or a translation model")
    parser.add_argument("--to", required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--dict",
        metavar="PATH",
        help="dict.txt of the data, for translation the folder with the dict.LANGUAGE.txt of both languages (default: "
        "those of the training data)",
    )
    parser.add_argument("--bpe-codes", metavar="FILE", help="codes of subword-nmt, if the data's words are subwords")
    for side in ("source", "target"):
        parser.add_argument(f"--{side}-lang", metavar="NAME", help=f"{side} language (default: that of the training)")
    parser.add_argument("--data", help="what the model was trained on, in words, for the card")
    parser.add_argument("--license", help="licence of the model, for the card")
    parser.add_argument("--language", metavar="CODE", help="language of its text, for the card: en; of several: de,en")
    parser.add_argument(
        "--note",
        action="append",
        default=[],
        metavar="NAME=TEXT",
        help="a further line of the card's table of the training, such as 'hardware=1 CPU core'; may be repeated",
    )
    parser.add_argument("--dtype", choices=DTYPES, help="type of the numbers in model.safetensors (default: float32)")
    add_overwrite(parser)
    return parser


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    with parser.one_line_errors():
        names = export(args)
    print(f"{args.to}: {', '.join(names)}")
