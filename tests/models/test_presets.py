"""Named architectures: parameter counts, resolved options, and the error with hydra."""

import argparse

import pytest
import torch
from fairseq import options
from fairseq.data import Dictionary
from omegaconf import OmegaConf

import fb_fairseq.models  # noqa: F401  registers the architectures
import fb_fairseq.tasks  # noqa: F401  registers streaming_lm
from fb_fairseq.errors import UserError


def resolve(arch, *more):
    """The options of ``fairseq-train --arch … …``."""
    parser = options.get_training_parser()
    arguments = ["data", "--task", "streaming_lm", "--arch", arch, "--criterion", "lm_loss", *more]
    return options.parse_args_and_arch(parser, arguments)


def dictionary(symbols):
    result = Dictionary()
    for i in range(symbols - len(result)):
        result.add_symbol(str(i))
    return result


# Number of symbols, and of parameters in millions: as stated in the papers, or as it follows from their sizes.
COUNTS = {
    "feedback_transformer_lm_random_walk": (66, 3.20),
    "feedback_transformer_lm_char_ptb": (51, 10.73),
    "feedback_transformer_lm_enwik8": (206, 76.8),
    "feedback_transformer_lm_wikitext103_small": (267_735, 44.1),
    "feedback_transformer_lm_wikitext103_large": (267_735, 139.1),
    "feedback_transformer_lm_wikitext103_large_shared": (267_735, 124.4),
    "all_attention_lm_char_small": (206, 38.5),
    "all_attention_lm_char_large": (206, 114.0),
    "all_attention_lm_wikitext103": (267_735, 132.2),
    "relative_transformer_lm_char_ptb": (51, 10.73),
    "relative_transformer_lm_enwik8": (206, 76.8),
    "relative_transformer_lm_wikitext103_small": (267_735, 44.1),
    "relative_transformer_lm_wikitext103_large": (267_735, 139.1),
}


@pytest.mark.parametrize("arch", ["feedback_transformer_lm", "feedback_transformer_lm_char_ptb", *list(COUNTS)[-3:]])
def test_post_norm(arch):
    """It can be reached from every named architecture, and stays the default elsewhere."""
    assert getattr(resolve(arch), "decoder_normalize_before", False) == (arch != "feedback_transformer_lm")
    assert resolve(arch, "--decoder-normalize-before").decoder_normalize_before
    assert not resolve(arch, "--no-decoder-normalize-before").decoder_normalize_before


@pytest.mark.parametrize("arch", COUNTS)
def test_parameter_counts(arch):
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.models import build_model

    symbols, millions = COUNTS[arch]
    words = dictionary(symbols)
    cfg = convert_namespace_to_omegaconf(resolve(arch))
    with torch.device("meta"):
        model = build_model(cfg.model, argparse.Namespace(source_dictionary=words, target_dictionary=words))
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)


GOLDEN = {
    "all_attention_lm_char_small": dict(
        decoder_layers=18,
        decoder_embed_dim=512,
        decoder_attention_heads=8,
        persistent_memory_size=1024,
        attention_span=8192,
        adaptive_span=True,
        adaptive_span_loss=1e-7,
        attention_dropout=0.3,
    ),
    "feedback_transformer_lm_enwik8": dict(
        decoder_layers=12,
        decoder_embed_dim=512,
        decoder_ffn_embed_dim=4096,
        decoder_attention_heads=8,
        decoder_head_dim=128,
        attention_span=8192,
        adaptive_span=True,
        adaptive_span_loss=5e-7,
        attention_dropout=0.5,
        activation_dropout=0.5,
        decoder_normalize_before=True,
        memory_projections="per-layer",
    ),
    "relative_transformer_lm_wikitext103_large": dict(
        decoder_layers=8,
        decoder_embed_dim=1024,
        decoder_ffn_embed_dim=4096,
        decoder_attention_heads=8,
        attention_span=512,
        attention_dropout=0.3,
        activation_dropout=0.3,
        embedding_dropout=0.2,
        output_dropout=0.2,
        adaptive_input=True,
        adaptive_input_cutoff="20000,40000,200000",
        tie_adaptive_weights=True,
    ),
}


@pytest.mark.parametrize("arch", GOLDEN)
def test_resolved_options(arch):
    args = resolve(arch)
    assert {name: getattr(args, name) for name in GOLDEN[arch]} == GOLDEN[arch]
    args = resolve(arch, "--decoder-layers", "2", "--attention-dropout", "0.25")
    assert (args.decoder_layers, args.attention_dropout, args.attention_span) == (
        2,
        0.25,
        GOLDEN[arch]["attention_span"],
    )


def test_hydra_error_lists_the_values():
    from fairseq.models import ARCH_CONFIG_REGISTRY

    with pytest.raises(UserError, match="model._name=feedback_transformer_lm_char_ptb.*decoder_layers=6"):
        ARCH_CONFIG_REGISTRY["feedback_transformer_lm_char_ptb"](OmegaConf.create({"decoder_layers": 6}))
