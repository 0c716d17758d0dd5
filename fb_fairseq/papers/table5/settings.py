"""The models of Table 5, their sizes in the papers and in small, and the papers' figures."""

from typing import Any, NamedTuple

TRANSFORMER, SHARED, PER_LAYER = "Transformer", "Feedback, shared", "Feedback, per-layer"
PHASES = ("training", "inference")


class LanguageModellingSizes(NamedTuple):
    """Sizes of the language models."""

    preset: str  # a name in ``fb_fairseq.models.architectures.TRANSFORMERS``, or empty
    options: dict[str, Any]  # values of the models' options, beyond those of the preset
    vocabulary: int
    block: int  # steps of a training block
    steps: int  # steps of inference that are timed at once, all with a full memory
    batch: int


class TranslationSizes(NamedTuple):
    """Sizes of the translation models; ``words`` is the length of each source and target sentence."""

    encoder_layers: int
    layers: int
    embed_dim: int
    ffn_dim: int
    heads: int
    vocabulary: int
    words: int
    beam: int
    batch: int


class ReinforcementLearningSizes(NamedTuple):
    """Sizes of the agents."""

    small: bool  # whether to take the small preset of the maze, or the papers'
    options: dict[str, Any]  # values of its options, beyond those of the preset
    steps: int  # steps of inference that are timed at once, all with a full memory
    batch: int  # number of environments


class Setting(NamedTuple):
    """Sizes of all tasks, and the default of ``--memory`` in gigabytes."""

    sizes: dict[str, tuple]
    memory: float


# The papers name the corpora, the layers of translation and, in v3 Tables 8 and 9, the models; batches are ours.
FULL = Setting(
    {
        "lm": LanguageModellingSizes("wikitext103_large", {}, vocabulary=267_735, block=256, steps=64, batch=16),
        "translation": TranslationSizes(6, 2, 1024, 4096, 16, vocabulary=32_768, words=25, beam=5, batch=128),
        "rl": ReinforcementLearningSizes(False, {}, steps=64, batch=1024),
    },
    memory=32,
)
SMALL = Setting(
    {
        "lm": LanguageModellingSizes(
            "",
            dict(
                **dict(decoder_layers=4, decoder_embed_dim=128, decoder_ffn_embed_dim=512),
                **dict(decoder_attention_heads=4, decoder_normalize_before=True, attention_span=64),
                **dict(dropout=0.1, attention_dropout=0.1),
            ),
            **dict(vocabulary=2000, block=32, steps=16, batch=8),
        ),
        "translation": TranslationSizes(6, 2, 128, 256, 4, vocabulary=2000, words=16, beam=5, batch=8),
        "rl": ReinforcementLearningSizes(True, {}, steps=16, batch=64),
    },
    memory=0.04,
)

# Words or frames per second, by task and phase: the Transformer's, and the Feedback Transformer's.
PAPERS: dict[tuple[str, str], tuple[float, float]] = {
    ("lm", "training"): (296e3, 84.4e3),
    ("lm", "inference"): (592, 2176),
    ("translation", "training"): (280e3, 126e3),
    ("translation", "inference"): (3190, 5410),
    ("rl", "training"): (22.3e3, 22.3e3),
}
