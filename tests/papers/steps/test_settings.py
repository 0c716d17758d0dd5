"""The settings in what recipes print are the papers' (``fb_fairseq/papers/values/hyperparameters.json``)."""

import argparse
import re

import pytest
import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model

from fb_fairseq.papers.experiments import wikitext103
from fb_fairseq.papers.experiments.sizes import equal_lstm
from fb_fairseq.papers.steps.words import words
from fb_fairseq.papers.values import load
from tests.cli.quick_composition import quick_composition
from tests.conftest import REPOSITORY
from tests.models.decoders import dictionary
from tests.models.test_presets import check_model
from tests.papers.steps.printed import commands, printed, refuses, trainings

TABLES = load("hyperparameters")
TABLE_9, TABLE_8 = (TABLES[name]["columns"] for name in ("v3 Table 9", "v3 Table 8"))
ALL_ATTENTION = TABLES["all-attention §5.1"]["columns"]
WIKITEXT, LARGE = "wikitext103", "feedback_transformer_lm_wikitext103_large"


def streams(args):
    return args.batch_size * args.update_freq[0]


# A column of the papers, the recipe that trains it, and the model if it is not the recipe's default.
LANGUAGE_MODELS = [
    ("random walk", "random_walk", ["--full", "--models", "feedback_transformer_lm"]),
    ("random walk", "algorithmic", ["--full", "--models", "relative_transformer_lm"]),
    ("char-PTB", "char_ptb", []),
    ("char-PTB", "char_ptb", ["--models", "relative_transformer_lm_char_ptb"]),
    ("enwik8", "enwik8", []),
    ("enwik8", "text8", []),
    ("WikiText-103 small", WIKITEXT, []),
    ("WikiText-103 large", WIKITEXT, ["--models", LARGE]),
    *(
        ("WikiText-103 large, span 2048", WIKITEXT, ["--models", f"{model}_span2048"])
        for model in (LARGE, f"{LARGE}_shared", "relative_transformer_lm_wikitext103_large")
    ),
]


@pytest.mark.parametrize("column,recipe,arguments", LANGUAGE_MODELS)
def test_language_models(column, recipe, arguments):
    paper = TABLE_9[column]
    args, *finetuned = trainings(printed(recipe, *arguments))
    check_model(args, column)
    assert (args.tokens_per_sample, streams(args)) == (paper["block"], paper["streams"])
    assert args.lr == [paper["lr"]]
    assert (args.clip_norm, args.warmup_updates) == (paper["clip_norm"], paper["warmup_updates"])
    assert args.optimizer == "adam" and args.lr_scheduler == "fixed"
    assert args.bptt_warmup_tokens == paper.get("first_block", 0)
    assert args.bptt_warmup_iterations == paper.get("block_doubles_after", 0)
    if "updates" in paper:
        (tuned,) = finetuned
        assert (args.max_update, tuned.max_update) == (paper["updates"], paper["finetune_updates"])
        assert tuned.lr[0] == pytest.approx(args.lr[0] / 10) and tuned.tokens_per_sample == paper["block"]
        assert tuned.warmup_updates == 0 and not tuned.bptt_warmup_tokens


@pytest.mark.parametrize(
    "column,recipe,model",
    [
        ("characters, small", "enwik8", "all_attention_lm_char_small"),
        ("characters, large", "text8", "all_attention_lm_char_large"),
        ("WikiText-103", WIKITEXT, "all_attention_lm_wikitext103"),
        ("WikiText-103", WIKITEXT, "all_attention_lm_wikitext103_3clusters"),
        ("Transformer + adaptive span, small", "enwik8", "relative_transformer_lm_char_small"),
        ("Transformer + adaptive span, large", "enwik8", "relative_transformer_lm_char_large"),
    ],
)
def test_all_attention(column, recipe, model):
    paper = ALL_ATTENTION[column]
    args, tuned = trainings(printed(recipe, "--models", model))
    check_model(args, column)
    assert (args.tokens_per_sample, streams(args)) == (paper["block"], paper["streams"])
    assert (args.lr, args.warmup_updates) == ([paper["lr"]], paper["warmup_updates"])
    if "clip_gradients" in paper:
        assert (args.optimizer, args.adagrad_clip, args.clip_norm) == ("clipped_adagrad", paper["clip_gradients"], 0)
    else:
        assert (args.optimizer, args.clip_norm) == ("adam", paper["clip_norm"])
    assert tuned.lr[0] == pytest.approx(args.lr[0] / 10)


@pytest.mark.parametrize(
    "column,recipe,projections",
    [
        ("Summarization", "cnn_dm", "per-layer"),
        ("WMT En-De", "wmt14_en_de", "shared"),  # v3 §4: "in experiments on large datasets"
        ("IWSLT De-En", "iwslt14_de_en", "per-layer"),
    ],
)
def test_translation(column, recipe, projections):
    paper = TABLE_8[column]
    text = printed(recipe, "--layers", 6, "--models", "initialised transformer feedback")
    transformer, feedback, initialised = trainings(text)
    for args in (transformer, feedback, initialised):
        assert (args.encoder_layers, args.decoder_layers) == (paper["encoder_layers"], paper["decoder_layers"])
        assert args.encoder_embed_dim == args.decoder_embed_dim == paper["width"]
        assert args.encoder_ffn_embed_dim == args.decoder_ffn_embed_dim == paper["ffn"]
        assert args.encoder_attention_heads == args.decoder_attention_heads == paper["heads"]
        assert (args.dropout, args.lr) == (paper["dropout"], [paper["lr"]])
    assert feedback.memory_projections == projections
    assert initialised.memory_projections == "per-layer"  # every parameter has a counterpart in the Transformer
    assert re.search("--beam 5 ", text)


def test_deep_encoder():
    """v3 §4.2.1: 12 encoder and 2 decoder layers, with LayerDrop."""
    (args,) = trainings(printed("wmt14_en_de", "--models", "deep-encoder"))
    assert (args.encoder_layers, args.decoder_layers, args.memory_projections) == (12, 2, "shared")
    assert args.encoder_layerdrop > 0 and args.encoder_embed_dim == 1024
    (small,) = trainings(printed("wmt14_en_de", "--small", "--models", "deep-encoder"))
    assert (small.encoder_layers, small.decoder_layers) == (12, 2) and small.encoder_embed_dim == 128
    several = trainings(printed("wmt14_en_de", "--models", "feedback deep-encoder"))
    assert [(run.encoder_layers, run.decoder_layers) for run in several] == [(6, 6), (6, 2), (12, 2), (6, 1)]
    refuses("deep-encoder has 2 decoder layers; give 2", "wmt14_en_de", "--models", "deep-encoder", "--layers", 6)


# Post-norm and lower learning rate, span, first block of the BPTT warm-up (0: none): v3 Table 6.
ABLATION = {
    "transformer-post": (True, 512, 0),
    "transformer-post-bptt": (True, 512, 32),
    "transformer-pre-bptt": (False, 512, 32),
    "transformer-pre-span": (False, 2048, 0),
    "feedback-post": (True, 512, 0),
    "feedback-post-bptt": (True, 512, 32),
    "feedback-pre-bptt": (False, 512, 32),
    "feedback-pre-span-bptt": (False, 2048, 32),
}


def test_ablation():
    text = printed(f"{WIKITEXT}_ablation")
    runs = trainings(text)
    assert [run.save_dir.split("/")[-1] for run in runs] == list(ABLATION), "and no fine-tuning"
    rows = next(table for table in load("results") if table["table"] == "v3 Table 6")["rows"]
    assert [row["match"]["model"] for row in rows] == list(ABLATION)
    for run, (name, (post, span, block)) in zip(runs, ABLATION.items()):
        assert run.arch.startswith("relative" if name.startswith("transformer") else "feedback")
        assert (not run.decoder_normalize_before, run.attention_span, run.bptt_warmup_tokens) == (post, span, block)
        assert (run.lr[0] < 0.0007) == post and getattr(run, "adaptive_span", False) == (span == 2048)
        assert (run.decoder_layers, run.decoder_ffn_embed_dim, run.decoder_embed_dim) == (12, 2048, 1024)


def test_training_time():
    """v1 Table 6: models that are initialised are trained for half as long."""
    runs = {run.save_dir.split("/")[-1]: run for run in trainings(printed(f"{WIKITEXT}_training_time"))}
    for name, run in runs.items():
        assert bool(run.bptt_warmup_tokens) == name.endswith("-bptt") and run.decoder_layers == 12
        assert run.decoder_normalize_before == (name == "transformer") == (run.lr == [0.0007])
        if name.startswith("initialised"):
            start = "/transformer-post/checkpoint_best.pt"
            assert run.init_from_transformer.endswith(start) and run.max_update == 100_000
        else:
            assert run.max_update == 200_000


def test_end_of_line():
    """v3 §7.6: trained and fine-tuned without end-of-line symbols, then fine-tuned with them."""
    text = printed(f"{WIKITEXT}_end_of_line")
    first, tuned, last = trainings(text)
    assert first.omit_eos and tuned.omit_eos and not last.omit_eos
    assert last.finetune_from_model == f"{tuned.save_dir}/checkpoint_best.pt"
    assert last.lr == tuned.lr and last.max_update == tuned.max_update == 10_000 and not last.bptt_warmup_tokens
    evaluations = [("--omit-eos" in command) for command in commands(text, "fairseq-eval-lm ")]
    assert evaluations == [True] * 4 + [False] * 2


def test_streams_of_evaluations():
    """Each starts with an empty memory. Both numbers can be chosen."""
    own = ["--models", "all_attention_lm_wikitext103", "--valid-streams", 16, "--test-streams", 2]
    found = commands(printed(WIKITEXT, *own), "fairseq-")
    given = {c[0]: c[c.index("--valid-streams") + 1] for c in found if "--valid-streams" in c}
    assert given == {"fairseq-train": "16", "fairseq-eval-lm": "2"}


@pytest.mark.parametrize("recipe,base", [("char_ptb", 6), (WIKITEXT, 4)])
def test_depth_at_constant_parameters(recipe, base):
    """v3 Figure 9: head width and feed-forward width are inversely proportional to the depth."""
    runs = [run for run in trainings(printed(recipe, "--layers", f"1 2 {base}")) if not run.finetune_from_model]
    sizes = {(r.decoder_layers * r.decoder_head_dim, r.decoder_layers * r.decoder_ffn_embed_dim) for r in runs}
    assert [run.decoder_layers for run in runs] == [1, 2, base] and len(sizes) == 1
    refuses("--layers 7: give .*divide", recipe, "--layers", 7)
    lstm, *_ = trainings(printed(WIKITEXT, "--small", "--layers", 3, "--models", "streaming_lstm_lm"))
    assert lstm.decoder_layers == 3


@pytest.mark.parametrize("corpus", ["char_ptb", "enwik8", "wikitext103"])
def test_small_models_have_as_many_parameters(corpus):
    """Except for scalars and biases; with --layers also at each depth, where that is promised (v3 Figure 9)."""
    symbols = dictionary(10_000)
    runs = [run for run in trainings(printed(corpus, "--small", "--layers", "1 4")) if not run.finetune_from_model]
    sizes = {}
    for run in runs:
        with quick_composition():
            cfg = convert_namespace_to_omegaconf(run)
        with torch.device("meta"):
            model = build_model(cfg.model, argparse.Namespace(source_dictionary=symbols, target_dictionary=symbols))
        sizes.setdefault(run.decoder_layers, []).append(sum(p.numel() for p in model.decoder.layers.parameters()))
    assert [len(counts) for counts in sizes.values()] == [3, 3]
    for counts in sizes.values():
        assert counts == pytest.approx([counts[0]] * 3, rel=0.01)
    if corpus != "enwik8":
        assert sizes[1] == pytest.approx(sizes[4], rel=0.01)


def test_seeds():
    """Seed 1 has no seed in its name; the initialised model starts from the Transformer of its own seed,
    which is trained before it.
    """
    models = ["--models", "initialised relative_transformer_lm", "--seeds", "1 2"]
    runs = trainings(printed(WIKITEXT, "--small", *models))
    names = [f"{model}-2{seed}" for seed in ("", "-seed2") for model in ("relative_transformer_lm", "initialised")]
    assert [run.save_dir.split("/")[-1] for run in runs[::2]] == names
    assert [run.seed for run in runs[::2]] == [1, 1, 2, 2]
    assert runs[6].init_from_transformer.endswith("/relative_transformer_lm-2-seed2/checkpoint_best.pt")


def test_wikitext103_says_which_row_its_models_are():
    """The figures in the script's help are those of the papers' tables."""
    text = (REPOSITORY / "examples/language_modeling/wikitext103/run.sh").read_text()
    for table in load("results"):
        for row in table["rows"]:
            model = row.get("match", {}).get("model", "")
            if table["recipe"] == "wikitext103" and model.startswith(("feedback", "all_attention")):
                (line,) = [line for line in text.splitlines() if re.search(rf"{model}\b(?!_)", line) and line[0] == "#"]
                assert str(row["test_perplexity"]) in line and table["table"].split()[-1] in line
                assert row["parameters"] in line


def test_options_as_words():
    """As fairseq spells them; numbers without an exponent."""
    options = dict(lr=2.5e-05, clip_norm=1.0, adam_betas="(0.9, 0.98)", cpu=True, fp16=False, patience=None)
    assert words(options) == ["--lr", "0.000025", "--clip-norm", "1.0", "--adam-betas", "(0.9, 0.98)", "--cpu"]


@pytest.mark.parametrize("size,layers", [("small", 4), ("large", 8)])
def test_the_depth_of_an_architecture_changes_nothing(size, layers):
    """It has the widths of the papers' models."""
    found = wikitext103.full_shape(f"feedback_transformer_lm_wikitext103_{size}", layers)
    assert found == dict(decoder_layers=layers, decoder_head_dim=128, decoder_ffn_embed_dim=4096)


def test_the_small_lstm_of_wikitext():
    """Its adaptive embeddings are as large as 5,079 whole ones."""
    expected = equal_lstm(2, parameters=393_216, width=128, words=5079)
    assert wikitext103.small_shape("streaming_lstm_lm", 2).items() >= expected.items()


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_an_lstm_of_equal_size(layers):
    """As many parameters as the Transformer on WikiText-2, in layers and embeddings together."""
    width = equal_lstm(layers, parameters=393_216, width=128, words=5080)["decoder_embed_dim"]
    weights = sum(p.numel() for p in torch.nn.LSTM(width, width, layers).parameters())
    assert weights + 5080 * width == pytest.approx(393_216 + 5080 * 128, rel=0.05)
