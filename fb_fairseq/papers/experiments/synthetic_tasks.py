"""The toy tasks and their settings (v1 §4.1; v3 §4.1, §7.1, §7.4)."""

from dataclasses import replace
from typing import Any

from fb_fairseq.papers.experiments.synthetic_task_recipe import Setting, SyntheticTask

# All models have the same number of layers and the same width. The LSTM has no feed-forward sublayers; the Feedback
# Transformer shares its projections.
SMALL = Setting(
    source="this project: minutes on a CPU",
    sequences={},
    updates=1000,
    span=8,
    layers=2,
    streams=64,
    model=dict(decoder_embed_dim=64),
    attention=dict(decoder_ffn_embed_dim=256, decoder_attention_heads=4, decoder_normalize_before=True),
    training=dict(tokens_per_sample=32, lr=0.002, clip_norm=1.0),
    lstm=dict(lr=0.005),
    decay=True,
)
FULL = Setting(
    source="v3 Table 9, random walk, which gives no number of updates",
    sequences={},
    updates=10_000,
    span=100,
    layers=4,
    streams=512,
    model=dict(decoder_embed_dim=256),
    attention=dict(
        decoder_ffn_embed_dim=1024,
        decoder_attention_heads=4,
        decoder_normalize_before=True,
        attention_dropout=0.2,
        activation_dropout=0.2,
    ),
    feedback=dict(memory_projections="per-layer"),  # 3.2M parameters each
    training=dict(tokens_per_sample=64, lr=0.0001, clip_norm=0.1, lr_scheduler="fixed", warmup_updates=1000),
    lstm=dict(dropout=0.2),
)


def small(**changes: Any) -> Setting:
    """The small setting with changes."""
    return replace(SMALL, **changes)


def full(**changes: Any) -> Setting:
    """The papers' setting with changes."""
    return replace(FULL, **changes)


RANDOM_WALK = SyntheticTask(
    "random_walk",
    "the position on a grid after steps and turns (v3 §4.1.2, §7.1); small: 4 x 4 cells",
    small=small(sequences=dict(size=4, train=10_000, valid=200, test=500), updates=6000),
    full=full(sequences=dict(size=8, train=10_000, valid=1000, test=1000)),
)
BLOCKED_RANDOM_WALK = SyntheticTask(
    "blocked_random_walk",
    "the position on a torus of 3 x 3 cells, two of them blocked (v1 §4.1, B.1)",
    small=small(sequences=dict(train=4000, valid=200, test=500), training={**SMALL.training, "lr": 0.001}),
    full=full(
        source="v3 Table 9, random walk; learning rate and clipping: v1 Table 9",
        sequences=dict(train=10_000, valid=1000, test=100_000),
        training={**FULL.training, "lr": 0.0003, "clip_norm": 1.0},
    ),
)
ALGORITHMIC = SyntheticTask(
    "algorithmic",
    "programs of assignments, increments, conditions and prints (v3 §4.1.2, §7.4); small: shorter, fewer values",
    small=small(
        sequences=dict(mix="table7", variables=3, statements=15, highest=4, train=40_000, valid=500, test=1000),
        updates=4000,
        span=64,
        streams=256,  # only one in 17 symbols has a label
    ),
    full=full(
        source="v3 Table 9, random walk; number of updates and nested assignments: the published program's",
        sequences=dict(mix="table7", nested_assignments=True, variables=3, train=10_000, valid=1000, test=1000),
        updates=50_000,
    ),
    graded="statements",
)
# With these spans, two layers of a Transformer do not reach back to what they need.
COPY = SyntheticTask(
    "copy",
    "copy a sequence; test sequences are ten times as long (v1 §4.1, v3 §4.1); small: 8 digits everywhere, span 3",
    small=small(sequences=dict(length=8, train=20_000, valid=200, test=500), span=3, updates=2000),
    full=full(sequences=dict(length=40, test_length=400, train=100_000, valid=1000, test=1000), span=1000),
    graded="length",
)
REVERSE = SyntheticTask(
    "reverse",
    "reverse a sequence; test sequences are ten times as long (v1 §4.1, v3 §4.1); small: 8 digits everywhere, span 4",
    small=small(sequences=dict(length=8, train=20_000, valid=200, test=500), span=4),
    full=full(sequences=dict(length=40, test_length=400, train=100_000, valid=1000, test=1000), span=1000),
    graded="length",
)
COUNTING = SyntheticTask(
    "counting",
    "write as many B's as there were A's (v3 §4.1); small: up to 20, span 8",
    small=small(sequences=dict(longest=20, train=20_000, valid=200, test=500), updates=2000),
    full=full(sequences=dict(longest=50, train=100_000, valid=1000, test=1000), span=128),
    graded="longest",
)
