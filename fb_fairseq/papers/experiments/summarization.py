"""Summarization: CNN/DailyMail (v3 §6.3, Table 8), as translation from articles to summaries."""

from fb_fairseq.papers.experiments.settings import Translation, TranslationScale

SIDES = ("article", "summary")
# Of each split: the name of its CSV file, and the number of pairs in it.
PAIRS = {"train": ("train", 287_113), "valid": ("validation", 13_368), "test": ("test", 11_490)}
HELD_OUT = 100  # pairs of a sample for testing, and as many for validation

# "use 3-gram blocking and tune length": the length penalty first, then the longest and shortest output
DECODING = dict(beam=5, no_repeat_ngram_size=3, max_len_a=0)
FULL = TranslationScale(
    # v3 §6.3 and Table 8, Summarization
    transformer="transformer",
    feedback="feedback_decoder_cnn_dm",
    updates=50_000,
    max_tokens=65_536,
    validate_every=1000,
    layers=[6, 4, 2, 1],
    training=dict(lr=0.0005, lr_scheduler="inverse_sqrt", warmup_updates=4000, dropout=0.3, share_all_embeddings=True),
    decoding=DECODING,
    lenpens=[0.5, 1.0, 1.5, 2.0],
    lengths=[
        dict(max_len_b=140, min_len=20),
        dict(max_len_b=100, min_len=20),
        dict(max_len_b=180, min_len=20),
        dict(max_len_b=140, min_len=40),
        dict(max_len_b=140, min_len=55),
    ],
)
SMALL = TranslationScale(
    # this project: small models on a sample
    transformer="transformer",
    feedback="feedback_decoder",
    updates=300,
    max_tokens=4000,
    validate_every=100,
    layers=[1],
    training=dict(
        lr=0.002, lr_scheduler="inverse_sqrt", warmup_updates=100, dropout=0.1, clip_norm=1.0, share_all_embeddings=True
    ),
    decoding=DECODING,
    sizes=dict(
        encoder_layers=2,
        encoder_embed_dim=96,
        encoder_ffn_embed_dim=192,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_normalize_before=True,
        decoder_normalize_before=True,
    ),
    lenpens=[1.0, 2.0],
    lengths=[dict(max_len_b=80, min_len=10), dict(max_len_b=60, min_len=10)],
)
CNN_DM = Translation(
    name="cnn_dm",
    summary="summarization on CNN/DailyMail (v3 §6.3, Table 8, Figure 7)",
    corpus="a folder with train.csv, validation.csv and test.csv (or .csv.gz; columns article and highlights); with "
    "--small a folder with any such CSV files, at least 300 pairs in total",
    pair=SIDES,
    metric=("rouge", "rougeL"),
    full=FULL,
    small=SMALL,
    language="en",
    # 400 words rarely have more than 1024 subwords; without truncation fairseq would stop at an article that does.
    task=dict(truncate_source=True, max_source_positions=1024, max_target_positions=1024),
)
