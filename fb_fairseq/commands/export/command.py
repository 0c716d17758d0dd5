"""Write a trained model for Hugging Face transformers.

    python -m fb_fairseq export checkpoints/checkpoint_best.pt --to model
    python -m fb_fairseq export checkpoints/checkpoint_best.pt --to model --data WikiText-103 --license cc-by-4.0

DIR gets config.json, model.safetensors, the files of a tokenizer, and README.md, a model card. fairseq is not needed to
load it: import fb_fairseq.transformers, then use AutoModelForCausalLM (for translation AutoModelForSeq2SeqLM) and
AutoTokenizer. --with-code adds the code that a model needs, so that trust_remote_code=True does instead of the import.
"""

import os
import shutil
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from fb_fairseq import pretrained
from fb_fairseq.checksums import add_to_weights, weights_in
from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.commands import checkpoint_of
from fb_fairseq.commands.average_checkpoints import NAME as AVERAGE
from fb_fairseq.commands.export.models import Languages
from fb_fairseq.commands.imported import quiet_transformers
from fb_fairseq.errors import UserError
from fb_fairseq.facts import facts_of_checkpoint, facts_of_log, known_facts
from fb_fairseq.files import WRITER, check_own_folder, open_text, own_folder
from fb_fairseq.tensor_files import using

NAME = "export"
DTYPES = ("bfloat16", "float16", "float32")


def export(
    path: str,
    folder: str,
    dictionaries: str | None,
    codes: str | None,
    known: dict[str, Any],
    languages: Languages = (None, None),
    with_code: bool = False,
    overwrite: bool = False,
    log: str | None = None,
    dtype: str | None = None,
) -> list[str]:
    """Write the model to a folder.

    Args:
        path: the checkpoint, or the name of a model that comes with the package.
        dictionaries, codes, languages: see ``fb_fairseq.commands.export.models.Checkpoint``.
        known: what the options say for the card, as arguments of ``CardFacts``; facts that the checkpoint has, too,
            are replaced, and notes of the same name.
        with_code: add the code that the model needs.
        overwrite: see ``fb_fairseq.files.own_folder``.
        log: log of the training, for the card's figures.
        dtype: type of the numbers in the file of weights, as torch names it; None: the model's.

    Returns:
        The names of its files, without those of the code."""
    from fb_fairseq import patches  # noqa: F401  the safe globals, before fairseq is used

    # isort: split
    from fb_fairseq.commands.export.models import build_language_model, build_translation, read
    from fb_fairseq.transformers import CONFIGS, FeedbackDecoderConfig

    check_own_folder("--to", folder, NAME, overwrite)
    shipped = pretrained.find(path)
    if shipped != path and not any((dictionaries, codes, *languages, with_code, log, dtype, *known.values())):
        with own_folder("--to", folder, NAME, overwrite) as temporary:
            shutil.copytree(shipped, temporary, dirs_exist_ok=True)
            return sorted(os.listdir(temporary))
    path = checkpoint_of(path)
    with using(path):
        checkpoint = read(path, dictionaries, codes, languages)
    builders = {**dict.fromkeys(CONFIGS, build_language_model), FeedbackDecoderConfig.model_type: build_translation}
    if checkpoint.architecture not in builders:
        raise UserError(f"{path}: {checkpoint.architecture} cannot be exported; give one of {', '.join(builders)}")
    name = os.path.basename(os.path.abspath(folder))
    with using(path):
        facts = facts_of_checkpoint(checkpoint.saved)
        if log:
            facts.update(read_log(log, path, checkpoint.saved))
        notes = {**dict(facts.get("notes", ())), **dict(known["notes"])}
        facts.update({fact: value for fact, value in known.items() if value})
        card = {**facts, "name": name, "with_code": with_code, "notes": list(notes.items())}
        model, tokenizers, facts = builders[checkpoint.architecture](checkpoint, card)
    return write(NAME, folder, model, tokenizers, facts, overwrite, dtype)


def write(
    command: str,
    folder: str,
    model,
    tokenizers: dict[str, Any],
    facts,
    overwrite: bool = False,
    dtype: str | None = None,
) -> list[str]:
    """Write a model of transformers, with its tokenizers by subfolder and a card of these facts; see ``export``.

    ``command``: the one that writes it."""
    from fb_fairseq.commands.export.code import add_code
    from fb_fairseq.transformers.card import TARGET_FOLDER, model_card
    from fb_fairseq.transformers.tokenizers import save_tokenizer

    stale = os.path.join(folder, TARGET_FOLDER)
    if TARGET_FOLDER not in tokenizers and os.path.isdir(stale):  # which would be read
        raise UserError(f"--to {stale}: this model has no second tokenizer; remove it, or give another folder")
    if dtype is not None and is_rounded(model, getattr(torch, dtype)):
        facts.notes.append(("numbers", f"rounded to {dtype} after the figures above were measured"))
    with own_folder("--to", folder, command, overwrite) as temporary:
        if facts.with_code:
            add_code(model, temporary)
        save_model(model, temporary, facts, dtype)
        for subfolder, tokenizer in tokenizers.items():
            save_tokenizer(tokenizer, os.path.join(temporary, subfolder))
        with open(os.path.join(temporary, "README.md"), "w", encoding="utf-8") as file:
            file.write(model_card(facts))
        return sorted(name for name in os.listdir(temporary) if not name.endswith(".py"))


def is_rounded(model, dtype: torch.dtype) -> bool:
    """Whether a model's numbers change in this type."""
    return not all(p.equal(p.to(dtype).to(p.dtype)) for p in model.parameters())


def save_model(model, folder: str, facts, dtype: str | None = None) -> None:
    """Save configuration and weights, with their facts; others may read them as any new file. Numbers that
    are kept in another type become those of ``model`` again when they are loaded."""
    with quiet_transformers():
        model.save_pretrained(folder)
    for path in weights_in(folder):
        if dtype is not None:
            tensors = {name: x.to(getattr(torch, dtype)) for name, x in load_file(path).items()}
            save_file(tensors, path, {"format": "pt"})
        add_to_weights(path, known_facts(vars(facts)))
    readable = os.stat(os.path.join(folder, "config.json")).st_mode
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), readable)  # safetensors' are for their owner only


def read_log(log: str, path: str, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The figures that a training's log has of a checkpoint, under ``CardFacts``' names."""
    if checkpoint.get(WRITER) == AVERAGE:
        raise UserError(f"--log {log}: {path} is an average, which no log of a training has figures of; leave it out")
    own = facts_of_checkpoint(checkpoint)
    if "updates" not in own:
        raise UserError(f"--log {log}: {path} does not say its updates, by which the log has its figures; leave it out")
    updates = own["updates"]
    with open_text(log) as file:
        figures = facts_of_log(file, updates)
    if not figures:
        raise UserError(f"--log {log}: has no validation after update {updates}; give its --log-format json log")
    compared = {"valid_bits", "valid_bleu"} & own.keys() & figures.keys()
    if any(abs(own[name] - figures[name]) > 0.01 for name in compared):
        raise UserError(f"--log {log}: is of another training: its validation is not that of {path}; leave it out")
    return figures


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
        "--log",
        metavar="FILE",
        help="log of its training (--log-format json), from which the card has the checkpoint's validation (default: "
        "what the checkpoint says)",
    )
    parser.add_argument(
        "--note",
        action="append",
        default=[],
        metavar="NAME=TEXT",
        help="a further line of the card's table of the training, such as 'hardware=1 CPU core'; may be repeated",
    )
    parser.add_argument("--dtype", choices=DTYPES, help="type of the numbers in model.safetensors (default: as saved)")
    parser.add_argument(
        "--with-code",
        action="store_true",
        help="add the code that the model needs, for trust_remote_code=True where fb_fairseq is not installed",
    )
    add_overwrite(parser)
    return parser


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    with parser.one_line_errors():
        notes = [note.partition("=")[::2] for note in args.note]
        if not all(name and text for name, text in notes):
            raise UserError(f"--note {args.note[0]}: give NAME=TEXT")
        known = {"data": args.data, "license": args.license, "language": args.language, "notes": notes}
        languages = args.source_lang, args.target_lang
        options = known, languages, args.with_code, args.overwrite, args.log, args.dtype
        names = export(args.checkpoint, args.to, args.dict, args.bpe_codes, *options)
    print(f"{args.to}: {', '.join(names)}{', and the code' if args.with_code else ''}")
