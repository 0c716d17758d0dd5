"""Translation: IWSLT'14 German to English and WMT'14 English to German (v3 §4.2.1, §6.2, Table 8); small: Multi30k."""

from fb_fairseq.papers.experiments.settings import Translation, TranslationScale

IWSLT14 = TranslationScale(
    # v3 §6.2 and Table 8: "we use beam size 5 without checkpoint averaging"
    transformer="transformer_iwslt_de_en",
    feedback="feedback_decoder_iwslt_de_en",
    updates=50_000,
    max_tokens=4096,
    validate_every=1000,
    layers=[6, 4, 2, 1],
    training=dict(
        lr=0.0005,
        lr_scheduler="inverse_sqrt",
        warmup_updates=4000,
        weight_decay=0.0001,
        dropout=0.3,
        share_decoder_input_output_embed=True,
    ),
    decoding=dict(beam=5),
)
WMT14 = TranslationScale(
    # v3 §4.2.1, §6.2 and Table 8: "generate with beam size 5, tuning a length penalty on the dev set. We average the
    # last 10 checkpoints and apply compound splitting and compute tokenized BLEU"
    transformer="transformer_wmt_en_de_big",
    feedback="feedback_decoder_wmt_en_de_big",
    updates=100_000,
    max_tokens=458_752,
    validate_every=1500,
    layers=[6, 2, 1],
    training=dict(lr=0.001, lr_scheduler="inverse_sqrt", warmup_updates=4000, dropout=0.3, share_all_embeddings=True),
    decoding=dict(beam=5),
    average=10,
    lenpens=[0.2, 0.4, 0.6, 0.8, 1.0],
    projections="shared",  # "in experiments on large datasets" (v3 §4)
    # 12 encoder and 2 decoder layers with LayerDrop (v3 §4.2.1). The paper does not give its rate: here it is that of
    # Fan et al. 2019 (arXiv 1909.11556).
    variants={"deep-encoder": dict(encoder_layers=12, encoder_layerdrop=0.2, decoder_layers=2)},
)
MULTI30K = TranslationScale(
    # this project: small models on Multi30k
    transformer="transformer",
    feedback="feedback_decoder",
    updates=1000,
    max_tokens=2000,
    validate_every=100,
    layers=[1, 2],
    training=dict(
        lr=0.004,
        lr_scheduler="cosine",
        warmup_updates=lambda updates: updates * 3 // 10,
        dropout=0.1,
        clip_norm=1.0,
        share_all_embeddings=True,
    ),
    decoding=dict(beam=5),
    sizes=dict(
        encoder_layers=3,
        encoder_embed_dim=128,
        encoder_ffn_embed_dim=256,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_normalize_before=True,
        decoder_normalize_before=True,
    ),
    lenpens=[0.6, 1.0, 1.4],
    raw=True,
)

IWSLT14_LINES = {"train": 160_239, "valid": 7283, "test": 6750}
MULTI30K_CORPUS = "with --small the folder of Multi30k's task 1, raw (train.de.gz, …)"
IWSLT14_DE_EN = Translation(
    name="iwslt14_de_en",
    summary="IWSLT'14 German to English (v3 Table 8, Figure 7)",
    corpus=f"the folder iwslt14.tokenized.de-en that fairseq's prepare-iwslt14.sh writes; {MULTI30K_CORPUS}",
    pair=("de", "en"),
    metric=("tokenized_bleu", "tokenized_bleu"),
    full=IWSLT14,
    small=MULTI30K,
)
# Names of the files without the language, for training, validation and testing; and their numbers of lines.
WMT14_LINES = {
    "train.tok.clean.bpe.32000": 4_500_966,
    "newstest2013.tok.bpe.32000": 3000,
    "newstest2014.tok.bpe.32000": 3003,
}
WMT14_EN_DE = Translation(
    name="wmt14_en_de",
    summary="WMT'14 English to German with the big Transformer (v3 Table 2, Figure 4)",
    corpus=f"the unpacked wmt16_en_de.tar.gz (32K joint BPE); {MULTI30K_CORPUS}",
    pair=("en", "de"),
    metric=("compound_split_bleu", "compound_split_bleu"),
    full=WMT14,
    small=MULTI30K,
)
