"""The models that are measured, built with the sizes from the command line.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import argparse
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, StreamState, TransformerOptions

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MODELS = {"feedback": FeedbackTransformer, "transformer": RelativeTransformer, "all-attention": AllAttention}


class Case(NamedTuple):
    """The name of a model in ``MODELS``, and values of ``TransformerOptions`` that it is built with."""

    model: str
    options: dict[str, Any]


def build_model(name: str, args: argparse.Namespace, **options) -> torch.nn.Module:
    """One of ``MODELS``, without embeddings and output layer.

    All-attention gets ``--ffn-dim`` persistent vectors per layer: as many parameters as a feed-forward sublayer of that
    width.

    Args:
        options: other options of ``TransformerOptions``.
    """
    if name == "all-attention":
        options["persistent_memory_size"] = args.ffn_dim
    model_options = TransformerOptions(
        **dict(decoder_layers=args.layers, decoder_embed_dim=args.embed_dim),
        **dict(decoder_ffn_embed_dim=args.ffn_dim, decoder_attention_heads=args.heads),
        **dict(decoder_normalize_before=True, attention_span=args.span),
        **options,
    )
    return MODELS[name](model_options).to(args.device, DTYPES[args.dtype])


def block_with_full_memory(model: torch.nn.Module, args: argparse.Namespace) -> tuple[Tensor, StreamState]:
    """A random block [T, B, D], and the state that carries a full memory into it (that of two spans of steps)."""
    x_TBD = torch.randn(args.block, args.batch_size, args.embed_dim, device=args.device, dtype=DTYPES[args.dtype])
    state = None
    with torch.no_grad():
        for _ in range(2 * args.span // args.block + 1):
            state = model.run_block(x_TBD, state)[1]
    return x_TBD, state
