"""The models that are measured, without embeddings and output layer."""

import argparse
from typing import Any, NamedTuple

from fb_fairseq.errors import UserError
from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, TransformerOptions
from fb_fairseq.modules.interface import Stack
from fb_fairseq.papers.benchmark.options import DTYPES

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
