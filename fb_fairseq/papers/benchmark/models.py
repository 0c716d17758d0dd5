"""The models that are measured, and the options that several benchmarks have in common, such as the models' sizes."""

import argparse
from typing import Any, NamedTuple

import torch

from fb_fairseq.command_line import whole_number
from fb_fairseq.errors import UserError
from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, TransformerOptions
from fb_fairseq.modules.interface import Stack

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MODELS = {"feedback": FeedbackTransformer, "transformer": RelativeTransformer, "all-attention": AllAttention}


class Case(NamedTuple):
    """A model to measure.

    Attributes:
        model: a name in ``MODELS``.
        options: values of ``TransformerOptions`` that it is built with.
        sizes: options of the command line, such as ``block``, in which it differs.
    """

    model: str
    options: dict[str, Any] = {}
    sizes: dict[str, int] = {}


def add_number(parser: argparse.ArgumentParser, option: str, default: int, text: str) -> None:
    """Add an option with a positive whole number. ``text``: its help, without the default."""
    parser.add_argument(option, type=whole_number, default=default, metavar="N", help=f"{text} (default: %(default)s)")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of train and decode: sizes of the models, number of streams, type, and what to measure."""
    add_number(parser, "--layers", 4, "number of layers")
    add_number(parser, "--embed-dim", 256, "model width D")
    add_number(parser, "--heads", 4, "number of attention heads")
    add_number(parser, "--ffn-dim", 1024, "units of a feed-forward sublayer")
    add_number(parser, "--span", 100, "attention span S, in steps")
    add_number(parser, "--batch-size", 8, "number of streams")
    text = "type of parameters and activations (default: %(default)s)"
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help=text)
    text = "measure these, and the Transformer, instead of all; a name that is unknown is answered with all names"
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help=text)


def only(cases: dict[str, Case], args: argparse.Namespace) -> dict[str, Case]:
    """The cases of ``--only``, and the first Transformer, with which others are compared; all without the option."""
    if not args.only:
        return cases
    unknown = [name for name in args.only if name not in cases]
    if unknown:
        known = ", ".join(map(repr, cases))
        raise UserError(f"--only {unknown[0]!r}: not measured here; choose from {known}")
    reference = next(name for name in cases if name.startswith("transformer"))
    return {name: case for name, case in cases.items() if name in (*args.only, reference)}


def build_model(name: str, args: argparse.Namespace, **options) -> Stack:
    """One of ``MODELS``, without embeddings and output layer. All-attention gets ``--ffn-dim`` persistent vectors per
    head and layer: as many parameters as a feed-forward sublayer of that width.

    Args:
        name: of the model.
        args: its sizes, device and type.
        options: further ``TransformerOptions``.
    """
    if args.embed_dim % args.heads:
        raise UserError(f"--heads {args.heads}: does not divide --embed-dim {args.embed_dim}; give a number that does")
    if name == "all-attention":
        options["persistent_memory_size"] = args.ffn_dim
    sizes = TransformerOptions(
        decoder_layers=args.layers,
        decoder_embed_dim=args.embed_dim,
        decoder_ffn_embed_dim=args.ffn_dim,
        decoder_attention_heads=args.heads,
        decoder_normalize_before=True,
        attention_span=args.span,
        **options,
    )
    return MODELS[name](sizes).to(args.device, DTYPES[args.dtype])
