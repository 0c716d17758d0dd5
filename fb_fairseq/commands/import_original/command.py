"""Turn a checkpoint of facebookresearch/adaptive-span or facebookresearch/transformer-sequential into one of fairseq.

    python -m fb_fairseq import-original checkpoint.pt --dict vocabulary.txt --out imported/model.pt

A post-norm Transformer or all-attention network, with adaptive spans or not, becomes relative_transformer_lm or
all_attention_lm; a sequential Transformer or Feedback Transformer (shared or per-layer projections) becomes
relative_transformer_lm or feedback_transformer_lm. fairseq's commands evaluate it, go on from prompts with it, and
fine-tune it (--finetune-from-model). dict.txt is written beside it, for fairseq-preprocess --srcdict.
"""

import argparse
import os
from typing import Dict, List

import torch

from fb_fairseq.commands.import_original.parameters import (
    Imported,
    Source,
    import_adaptive_words,
    import_layers,
    import_words,
    is_adaptive,
    vocabulary,
)
from fb_fairseq.errors import UserError


def read(path: str) -> Source:
    """
    Raises:
        UserError: the file cannot be read, or is of another program.
    """
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give a checkpoint") from None
    except Exception as error:
        raise UserError(
            f"{path}: no checkpoint that torch.load reads as weights only ({type(error).__name__})"
        ) from None
    state = saved.get("model") if isinstance(saved, dict) else None
    if not isinstance(state, dict) or not all(torch.is_tensor(value) for value in state.values()):
        raise UserError(f"{path}: holds no model; give a checkpoint of adaptive-span or transformer-sequential")
    source = Source(path, state)
    if "key_pe" not in source and "layers.0.attn.attn.key_pe" not in source:
        raise UserError(
            f"{path}: has neither key_pe nor layers.0.attn.attn.key_pe: no checkpoint of adaptive-span or "
            "transformer-sequential (other position embeddings cannot be imported)"
        )
    return source


def command_line(options: Dict[str, object]) -> List[str]:
    """The model's options as fairseq-train takes them."""
    line = []
    for name, value in options.items():
        if value is not False:
            line += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return line


def save(path: str, imported: Imported, dictionary, out: str) -> int:
    """Write a fairseq checkpoint of what was imported from ``path``; returns the number of parameters."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.models import build_model
    from omegaconf import OmegaConf

    import fb_fairseq.tasks  # noqa: F401  --user-dir does this in fairseq's commands

    line = [
        "",
        "--task",
        "streaming_lm",
        "--criterion",
        "lm_loss",
        "--optimizer",
        "adam",
        *command_line(imported.options),
    ]
    args = options.parse_args_and_arch(options.get_training_parser(), line)
    cfg = convert_namespace_to_omegaconf(args)
    model = build_model(cfg.model, argparse.Namespace(source_dictionary=dictionary, target_dictionary=dictionary))
    own = dict(model.named_parameters())
    found = imported.parameters
    misfits = [name for name in own if name not in found or found[name].shape != own[name].shape]
    misfits += [name for name in found if name not in own]
    if misfits:
        raise UserError(
            f"{path}: the sizes of its parameters contradict each other: {', '.join(misfits[:3])} do not fit"
        )
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(imported.parameters[name])
    history = {
        "criterion_name": "LanguageModelLoss",
        "optimizer_name": "FairseqAdam",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
    checkpoint = {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),  # as fairseq's trainer saves it
        "model": model.state_dict(),
        "criterion": {},
        "optimizer_history": [history],
        "task_state": {},
        "extra_state": {"metrics": [], "previous_training_time": 0},
    }
    torch.save(checkpoint, out + ".tmp")
    os.replace(out + ".tmp", out)
    return sum(parameter.numel() for parameter in model.parameters())


def convert(path: str, symbols: str, out: str, ramp: int, as_bytes: bool) -> None:
    from fb_fairseq import patches  # noqa: F401  before fairseq is used
    from fb_fairseq.commands.import_original.symbols import match_dictionary, write_dictionary

    source = read(path)
    imported = import_layers(source, ramp)
    dictionary, places = match_dictionary(symbols, vocabulary(source), as_bytes)
    words = (
        import_adaptive_words(source, places) if is_adaptive(source) else import_words(source, places, len(dictionary))
    )
    imported.options.update(words.options)
    imported.parameters.update(words.parameters)
    source.check_all_taken()
    folder = os.path.dirname(os.path.abspath(out))
    if not os.path.isdir(folder):
        raise UserError(f"--out {out}: its folder does not exist; make it, or give another")
    dictionary_path = write_dictionary(dictionary, folder)
    parameters = save(path, imported, dictionary, out)
    print(f"{out}: {parameters:,} parameters, --task streaming_lm {' '.join(command_line(imported.options))}")
    print(f"{dictionary_path}: its dictionary, {len(dictionary)} symbols, for fairseq-preprocess --srcdict")
    if imported.options["adaptive_span"]:
        print(f"The spans' ramp is taken as {ramp} steps (--span-ramp); the file does not tell it.")


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m fb_fairseq import-original",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", help="the published program's checkpoint")
    parser.add_argument("--dict", required=True, metavar="FILE", help="its vocabulary: a symbol a line, in its order")
    parser.add_argument("--out", required=True, metavar="FILE.pt", help="the fairseq checkpoint to write")
    parser.add_argument(
        "--span-ramp",
        type=int,
        default=32,
        metavar="R",
        help="steps over which adaptive spans fade out (default: %(default)s)",
    )
    parser.add_argument(
        "--bytes",
        action="store_true",
        help="the symbols are bytes (numbers, or characters with _ for a blank; <eos> is a newline): "
        "for data of fb_fairseq.commands.preprocess_bytes",
    )
    args = parser.parse_args(argv)
    if args.span_ramp < 1:
        parser.error(f"--span-ramp {args.span_ramp}: give the steps, 1 or more")
    if os.path.abspath(args.out) == os.path.abspath(args.checkpoint):
        parser.error(f"--out {args.out}: would overwrite the checkpoint; give another file")
    try:
        convert(args.checkpoint, args.dict, args.out, args.span_ramp, args.bytes)
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
