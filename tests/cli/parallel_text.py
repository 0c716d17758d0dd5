"""A made-up language pair: the target is the source's words, translated one by one, in reverse order."""

import random
import re

from tests.cli.fairseq_commands import options, run
from tests.cli.fairseq_commands import preprocess as binarise

LANGUAGES = dict(source_lang="de", target_lang="en")
WORDS = [f"{a}{b}" for a in "bcdfgh" for b in "aeiou"]


def pairs(number, seed):
    """So many (source, target) lines."""
    draw = random.Random(seed)
    for _ in range(number):
        words = [draw.choice(WORDS) for _ in range(draw.randint(1, 7))]
        yield " ".join(words), " ".join(word.upper() for word in reversed(words))


def write_pairs(prefix, lines):
    """Write these ``pairs`` to the files ``PREFIX.de`` and ``PREFIX.en``."""
    sources, targets = zip(*lines)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for language, text in (("de", sources), ("en", targets)):
        prefix.with_suffix(f".{language}").write_text("\n".join(text) + "\n")


def preprocess(folder, **changes):
    """Binarise 400 pairs to train on, 30 to validate and 30 to test on. Returns the folder of the data.

    ``changes``: options of fairseq-preprocess.
    """
    for seed, (split, number) in enumerate((("train", 400), ("valid", 30), ("test", 30))):
        write_pairs(folder / split, pairs(number, seed))
    return binarise(folder, **{**LANGUAGES, "destdir": folder / "data", **changes})


ENCODER = dict(encoder_layers=1, encoder_embed_dim=32, encoder_ffn_embed_dim=48, encoder_attention_heads=2)
TINY = dict(
    task="translation",
    arch="feedback_decoder",
    criterion="label_smoothed_cross_entropy",
    label_smoothing=0.1,
    **ENCODER,
    decoder_layers=2,
    decoder_ffn_embed_dim=48,
    decoder_attention_heads=2,
    share_decoder_input_output_embed=True,
    dropout=0.0,
    optimizer="adam",
    lr=0.005,
    lr_scheduler="inverse_sqrt",
    warmup_updates=20,
    max_tokens=400,
    cpu=True,
    log_format="json",
    log_interval=5,
    num_workers=0,
    no_epoch_checkpoints=True,
    required_batch_size_multiple=1,  # fairseq's 8 is for GPUs
)


def train(data, save_dir, **changes):
    """Train a tiny Feedback model, or what the options ``changes`` make of it. Returns fairseq-train's log."""
    return run("train", data, "--save-dir", save_dir, *options({**TINY, **changes}))


def hypotheses(log):
    """Each sentence's best hypothesis in the log of fairseq-generate, by the sentence's number."""
    return {int(n): text for n, text in re.findall(r"^H-(\d+)\t[-\d.einf]+\t(.*)$", log, re.M)}


def generate(data, path, command="generate", **changes):
    """The log of fairseq-generate, or of another ``command``, for the checkpoint ``path``."""
    values = dict(path=path, beam=5, cpu=True, batch_size=7, num_workers=0)
    return run(command, data, *options({**values, **changes}))


def bleu(log):
    """The score in the log of fairseq-generate or fairseq-score."""
    return float(re.search(r"BLEU4? = ([\d.]+)", log)[1])
