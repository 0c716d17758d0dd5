"""fairseq's own ``transformer_lm`` of the sizes that the command line gives, where fairseq is installed."""

import argparse
import importlib.util
from typing import Optional

import torch

from fb_fairseq.benchmark.measure import DTYPES

NAME = "fairseq's transformer_lm"
VOCABULARY = 260


def stock_decoder(args, positions: int) -> Optional[torch.nn.Module]:
    """The decoder of a model with so many absolute positions; None without fairseq."""
    if importlib.util.find_spec("fairseq") is None:
        return None
    from fairseq.data import Dictionary
    from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig

    from fb_fairseq import patches  # noqa: F401  before fairseq is used

    dictionary = Dictionary()
    for i in range(VOCABULARY - len(dictionary)):
        dictionary.add_symbol(str(i))
    cfg = TransformerLanguageModelConfig(
        decoder_layers=args.layers,
        decoder_embed_dim=args.embed_dim,
        decoder_input_dim=args.embed_dim,
        decoder_output_dim=args.embed_dim,
        decoder_ffn_embed_dim=args.ffn_dim,
        decoder_attention_heads=args.heads,
        decoder_normalize_before=True,
        dropout=0.0,
        tokens_per_sample=positions,
        max_target_positions=positions,
        add_bos_token=False,
        tpu=False,
    )
    task = argparse.Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = TransformerLanguageModel.build_model(cfg, task)
    return model.decoder.to(args.device, DTYPES[args.dtype])


def state_bytes(incremental_state: dict) -> int:
    """Bytes of the keys and values that decoding keeps."""
    tensors = [x for entry in incremental_state.values() for x in entry.values() if torch.is_tensor(x)]
    return sum(x.numel() * x.element_size() for x in tensors)
