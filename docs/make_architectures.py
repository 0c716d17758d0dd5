"""Write docs/architectures.md: the size of every named architecture, counted on the model itself.

python docs/make_architectures.py
"""

import argparse
import pathlib
import re
from typing import NamedTuple

from fb_fairseq import patches  # noqa: F401  before fairseq is used

# isort: split
import torch
from fairseq import models, options
from fairseq.data import Dictionary

import fb_fairseq.models
import fb_fairseq.tasks  # noqa: F401  registers streaming_lm
from fb_fairseq.trained_model import FUSED_COPY

PAGE = pathlib.Path(__file__).with_name("architectures.md")
HEAD = """# Architectures

Written by `python docs/make_architectures.py`; do not edit. These are the values of `--arch` that this plugin adds.
Every option of an architecture can be overridden on the command line ([all options](options.md));
`fairseq-train --help --user-dir fb_fairseq --arch NAME` prints its defaults.

Parameters are counted with the vocabulary of the corpus, embeddings and output layer included. The results are those
that the papers report; ours, at small sizes, are in [results.md](../examples/results.md).
"""
LM_HEAD = """
## Language models (`--task streaming_lm`)

*Memory* is what each stream carries from block to block in fp32: one vector per step, or one per step and layer.
Multiply it by the number of streams (`--batch-size` × processes × `--update-freq`). An asterisk marks an adaptive
span, which shortens it. All-attention has N persistent vectors per head in place of feed-forward units.
Architectures without a corpus in their name are for models of your own; the table shows their defaults.

"""
DECODER_HEAD = """
## Translation and summarization (`--task translation`)

fairseq's Transformer encoder and a decoder with feedback memory. *Memory* is the keys and values that a hypothesis
keeps per target token in fp32: one set with shared projections (the default), or one per layer (`--memory-projections
per-layer`). Parameters are counted with one embedding for everything (`--share-all-embeddings`).

"""
LM_COLUMNS = ["`--arch`", "layers", "width", "feed-forward", "heads", "span", "parameters", "memory per stream"]
DECODER_COLUMNS = [
    "`--arch`",
    "encoder, decoder layers",
    "width",
    "feed-forward",
    "heads",
    "parameters",
    "memory per token: shared, per layer",
]
WORDS, BYTES = 267_735, 206  # WikiText-103's vocabulary, and that of enwik8


class Row(NamedTuple):
    """An architecture, the size of its dictionary, what the paper reports, and the recipe's folder in examples/."""

    arch: str
    symbols: int
    paper: str = ""
    recipe: str = ""


WIKITEXT = "language_modeling/wikitext103"
FEEDBACK, TRANSFORMER, ALL_ATTENTION = "feedback_transformer_lm", "relative_transformer_lm", "all_attention_lm"
LANGUAGE_MODELS = [
    Row(FEEDBACK, BYTES),
    Row(f"{FEEDBACK}_random_walk", 66, "100 % (random walk; v3 Table 1)", "synthetic_tasks"),
    Row(f"{FEEDBACK}_char_ptb", 51, "v3 Figures 5, 8 and 9", "language_modeling/char_ptb"),
    Row(f"{FEEDBACK}_enwik8", BYTES, "0.96 bits per byte (v3 Table 4)", "language_modeling/enwik8"),
    Row(f"{FEEDBACK}_text8", 31, "", "language_modeling/text8"),
    Row(f"{FEEDBACK}_wikitext103_small", WORDS, "perplexity 22.4 (44M; v1 Table 4)", WIKITEXT),
    Row(f"{FEEDBACK}_wikitext103_large", WORDS, "", WIKITEXT),
    Row(f"{FEEDBACK}_wikitext103_large_span2048", WORDS, "perplexity 18.2 (139M; v1 Table 4)", WIKITEXT),
    Row(f"{FEEDBACK}_wikitext103_large_shared", WORDS, "", WIKITEXT),
    Row(f"{FEEDBACK}_wikitext103_large_shared_span2048", WORDS, "perplexity 18.3 (126M; v3 Table 3)", WIKITEXT),
    Row(TRANSFORMER, BYTES),
    Row(f"{TRANSFORMER}_random_walk", 66, "68 % (random walk; v3 Table 1)", "synthetic_tasks"),
    Row(f"{TRANSFORMER}_char_ptb", 51, "v3 Figures 5, 8 and 9", "language_modeling/char_ptb"),
    Row(f"{TRANSFORMER}_enwik8", BYTES, "", "language_modeling/enwik8"),
    Row(f"{TRANSFORMER}_text8", 31, "", "language_modeling/text8"),
    Row(f"{TRANSFORMER}_wikitext103_small", WORDS, "perplexity 25.2 (44M; v1 Table 4)", WIKITEXT),
    Row(f"{TRANSFORMER}_wikitext103_large", WORDS, "", WIKITEXT),
    Row(f"{TRANSFORMER}_wikitext103_large_span2048", WORDS, "perplexity 19.9 (140M; v3 Table 3)", WIKITEXT),
    Row(f"{TRANSFORMER}_char_small", BYTES, "1.02 (enwik8, 39M), 1.11 (text8)", "language_modeling/enwik8"),
    Row(f"{TRANSFORMER}_char_large", BYTES, "0.98 (enwik8, 209M), 1.07 (text8)", "language_modeling/enwik8"),
    Row(ALL_ATTENTION, BYTES),
    Row(
        f"{ALL_ATTENTION}_char_small",
        BYTES,
        "1.01 bits per byte (enwik8; Table 1), 1.11 bits per character (text8; Table 2)",
        "language_modeling/enwik8",
    ),
    Row(f"{ALL_ATTENTION}_char_large", BYTES, "0.98 (enwik8), 1.08 (text8)", "language_modeling/enwik8"),
    Row(f"{ALL_ATTENTION}_wikitext103", WORDS, "perplexity 20.6 (133M; Table 3)", WIKITEXT),
    Row(
        f"{ALL_ATTENTION}_wikitext103_3clusters", WORDS, "the same, with clusters of 20k, 40k and 200k words", WIKITEXT
    ),
    Row("streaming_lstm_lm", BYTES, "the LSTM of the toy tasks", "synthetic_tasks"),
]
DECODERS = [
    Row("feedback_decoder", 10_000),
    Row("feedback_decoder_iwslt_de_en", 10_000, "v3 Figure 7, left", "translation/iwslt14_de_en"),
    Row("feedback_decoder_wmt_en_de_big", 32_768, "29.5 BLEU (v3 Table 2)", "translation/wmt14_en_de"),
    Row("feedback_decoder_cnn_dm", 32_768, "v3 Figure 7, right", "summarization/cnn_dm"),
]


def build(row: Row, task: str, *more: str):
    """A model on the meta device, and its resolved options."""
    words = Dictionary()
    for i in range(row.symbols - len(words)):
        words.add_symbol(str(i))
    arguments = ["data", "--task", task, "--arch", row.arch, *more]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    names = ("source_dictionary", "target_dictionary")
    setup = argparse.Namespace(**dict.fromkeys(names, words))
    dataclass = models.MODEL_DATACLASS_REGISTRY.get(models.ARCH_MODEL_NAME_REGISTRY[row.arch])
    cfg = dataclass.from_namespace(args) if dataclass else args
    with torch.device("meta"):
        return models.ARCH_MODEL_REGISTRY[row.arch].build_model(cfg, setup), cfg


def megabytes(count: int) -> str:
    """A number of bytes, with three digits."""
    return f"{count / 1e6:.3g} MB" if count >= 1e6 else f"{count / 1e3:.3g} KB"


def last_cells(row: Row) -> list[str]:
    """Cells that both tables end with."""
    recipe = f"[{row.recipe}](../examples/{row.recipe})" if row.recipe else ""
    return [row.paper, recipe]


def parameters(model) -> str:
    """The number of parameters, without the copies that fairseq 0.12.2's encoder layers keep of theirs."""
    own = [p for name, p in model.named_parameters() if not re.search(FUSED_COPY, name)]
    return f"{sum(p.numel() for p in own) / 1e6:.3g} M"


def language_model(row: Row) -> list[str]:
    """The cells of a language model."""
    model, cfg = build(row, "streaming_lm", "--criterion", "lm_loss")
    sizes = [str(cfg.decoder_layers), str(cfg.decoder_embed_dim)]
    if row.arch.startswith("streaming_lstm"):  # its state: output and cell of each layer
        cells = ["", "", "", parameters(model), megabytes(4 * 2 * cfg.decoder_layers * cfg.decoder_embed_dim)]
    else:
        vectors = 1 if row.arch.startswith(FEEDBACK) else cfg.decoder_layers
        span = f"{cfg.attention_span}{'*' * cfg.adaptive_span}"
        if row.arch.startswith(ALL_ATTENTION):
            width = f"N = {cfg.persistent_memory_size}"
        else:
            width = str(cfg.decoder_ffn_embed_dim)
        memory = megabytes(4 * vectors * cfg.attention_span * cfg.decoder_embed_dim)
        cells = [width, str(cfg.decoder_attention_heads), span, parameters(model), memory]
    return [f"`{row.arch}`", *sizes, *cells, *last_cells(row)]


def decoder(row: Row) -> list[str]:
    """The cells of a translation model."""
    model, cfg = build(row, "translation", "--share-all-embeddings")
    layers, width = cfg.decoder_layers, cfg.decoder_embed_dim
    shared, per_layer = (megabytes(4 * 2 * count * width) for count in (1, layers))
    sizes = [f"{cfg.encoder_layers}, {layers}", str(width), str(cfg.decoder_ffn_embed_dim)]
    cells = [*sizes, str(cfg.decoder_attention_heads), parameters(model), f"{shared}, {per_layer}"]
    return [f"`{row.arch}`", *cells, *last_cells(row)]


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A table; the last two columns, the paper's result and the recipe, are added to the names given."""
    rules = ["---", *["---:"] * (len(columns) - 1), "---", "---"]
    lines = [[*columns, "the paper's result", "recipe"], rules, *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def page() -> str:
    """The whole page."""
    language_models = table(LM_COLUMNS, list(map(language_model, LANGUAGE_MODELS)))
    return HEAD + LM_HEAD + language_models + DECODER_HEAD + table(DECODER_COLUMNS, list(map(decoder, DECODERS)))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"Wrote {PAGE}")
