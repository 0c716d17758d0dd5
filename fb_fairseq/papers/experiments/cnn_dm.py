"""CNN/DailyMail (v3 §6.3, Table 8)."""

import glob
import os

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.text import apply_bpe, beside, check_lines, check_text, count_lines, first_file
from fb_fairseq.papers.runner.translation import Scale, Translation

PAIR = ("article", "summary")
# "use 3-gram blocking and tune length": the length penalty first, then the longest and shortest output
DECODING = dict(beam=5, no_repeat_ngram_size=3, max_len_a=0)
FULL = Scale(
    source="v3 §6.3 and Table 8, Summarization",
    **dict(transformer="transformer", feedback="feedback_decoder_cnn_dm", updates=50_000, max_tokens=65_536),
    **dict(validate_every=1000, layers=[6, 4, 2, 1]),
    training=dict(lr=0.0005, lr_scheduler="inverse_sqrt", warmup_updates=4000, dropout=0.3, share_all_embeddings=True),
    **dict(decoding=DECODING, lenpens=[0.5, 1.0, 1.5, 2.0]),
    lengths=[
        dict(max_len_b=longest, min_len=shortest)
        for longest, shortest in ((140, 20), (100, 20), (180, 20), (140, 40), (140, 55))
    ],
)
SMALL = Scale(
    source="this project: small models on a sample",
    **dict(transformer="transformer", feedback="feedback_decoder", updates=300, max_tokens=4000),
    **dict(validate_every=100, layers=[1]),
    training=dict(
        lr=0.002, lr_scheduler="inverse_sqrt", warmup_updates=100, dropout=0.1, clip_norm=1.0, share_all_embeddings=True
    ),
    decoding=DECODING,
    sizes=dict(
        **dict(encoder_layers=2, encoder_embed_dim=96, encoder_ffn_embed_dim=192, encoder_attention_heads=4),
        **dict(decoder_attention_heads=4, encoder_normalize_before=True, decoder_normalize_before=True),
    ),
    lenpens=[1.0, 2.0],
    lengths=[dict(max_len_b=80, min_len=10), dict(max_len_b=60, min_len=10)],
)
PAIRS = {"train": ("train", 287_113), "valid": ("validation", 13_368), "test": ("test", 11_490)}
HELD_OUT = 100  # pairs of a sample for testing, and for validation


def read_csv(shell: Shell, files: list[str], folder: str, split: str, *options: object) -> None:
    """Write the tokens of both sides to ``{split}.tok.{article,summary}``."""
    article, summary = (os.path.join(folder, f"{split}.tok.{side}") for side in PAIR)
    command = ("python", "-m", "fb_fairseq.papers.experiments.corpora.read_csv", *files, *options)
    shell.run(*command, "--source", article, "--target", summary)


def prepare_sample(shell: Shell, source: str, folder: str) -> None:
    """Some CSV files: the first pairs are for testing and validation."""
    pattern = os.path.join(glob.escape(source), "*.csv")
    files = sorted(path for path in [*glob.glob(pattern), *glob.glob(f"{pattern}.gz")] if os.path.isfile(path))
    for path in files:
        check_text(shell, path)
    if not files:
        shell.comment("(all .csv and .csv.gz files of DATA instead of this one)")
        files = shell.do(list, otherwise=[os.path.join(source, "articles.csv")])
    if not files:
        raise UserError(f"DATA {source}: no *.csv or *.csv.gz in this folder; give another")
    read_csv(shell, files, folder, "test", "--take", HELD_OUT)
    read_csv(shell, files, folder, "valid", "--skip", HELD_OUT, "--take", HELD_OUT)
    read_csv(shell, files, folder, "train", "--skip", 2 * HELD_OUT)
    if shell.do(count_lines, os.path.join(folder, "train.tok.article"), otherwise=HELD_OUT) < HELD_OUT:
        raise UserError(f"DATA {source}: fewer than {3 * HELD_OUT} pairs; give more")


def prepare(shell: Shell, source: str, folder: str, small: bool) -> None:
    """Tokenise both sides, split them into subwords and binarise them."""
    if small:
        prepare_sample(shell, source, folder)
    else:
        for split, (name, _) in PAIRS.items():
            file = first_file(shell, source, f"{name}.csv", f"{name}.csv.gz", wanted="another")
            check_text(shell, file)
            read_csv(shell, [file], folder, split)
        for split, (_, number) in PAIRS.items():
            check_lines(shell, os.path.join(folder, f"{split}.tok.article"), number)
    apply_bpe(shell, folder, PAIR, 2000 if small else 32_000, log=beside(folder, "bpe.err"))


CNN_DM = Translation(
    name="cnn_dm",
    summary="summarization on CNN/DailyMail (v3 §6.3, Table 8, Figure 7)",
    corpus="a folder with train.csv, validation.csv and test.csv (or .csv.gz; columns article and highlights); with "
    "--small a folder with any such CSV files, at least 300 pairs in total",
    **dict(pair=PAIR, prepare=prepare, metric=("rouge", "rougeL"), full=FULL, small=SMALL, language="en"),
    # 400 words rarely have more than 1024 subwords; without truncation fairseq would stop at an article that does.
    task=dict(truncate_source=True, max_source_positions=1024, max_target_positions=1024),
)
