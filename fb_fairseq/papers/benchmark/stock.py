"""fairseq's own ``transformer_lm``, where fairseq is installed, with the sizes from the command line."""

import argparse
import importlib.util
from typing import Any

import torch

from fb_fairseq.papers.benchmark.models import DTYPES

STOCK_NAME = "fairseq's transformer_lm"
VOCABULARY_SIZE = 260


def stock_decoder(args: argparse.Namespace, positions: int) -> torch.nn.Module | None:
    """The decoder of a ``transformer_lm`` with this many absolute positions; None if fairseq is not installed."""
    if importlib.util.find_spec("fairseq") is None:
        return None
    from fb_fairseq import patches  # noqa: F401  before fairseq is imported: the warning filters

    # isort: split
    from fairseq.data import Dictionary
    from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig

    dictionary = Dictionary()
    for i in range(VOCABULARY_SIZE - len(dictionary)):
        dictionary.add_symbol(str(i))
    cfg = TransformerLanguageModelConfig(
        **dict(decoder_layers=args.layers, decoder_embed_dim=args.embed_dim, decoder_input_dim=args.embed_dim),
        **dict(decoder_output_dim=args.embed_dim, decoder_ffn_embed_dim=args.ffn_dim),
        **dict(decoder_attention_heads=args.heads, decoder_normalize_before=True, dropout=0.0),
        **dict(tokens_per_sample=positions, max_target_positions=positions, add_bos_token=False, tpu=False),
    )
    task = argparse.Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = TransformerLanguageModel.build_model(cfg, task)
    return model.decoder.to(args.device, DTYPES[args.dtype])


def random_tokens(args: argparse.Namespace, steps: int) -> torch.Tensor:
    """Random words [B, T], without the special symbols of fairseq's dictionaries (the first four)."""
    return torch.randint(4, VOCABULARY_SIZE, (args.batch_size, steps), device=args.device)


def state_bytes(incremental_state: dict[str, dict[str, Any]]) -> int:
    """Bytes of the keys and values that fairseq's incremental decoding keeps."""
    tensors = [x for entry in incremental_state.values() for x in entry.values() if torch.is_tensor(x)]
    return sum(x.numel() * x.element_size() for x in tensors)
