"""What the tasks of Table 5 have in common: models that train and infer with a batch of any size. Their sizes in the
papers and in small, and the papers' figures."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from fb_fairseq.ops.feedback.loops import AUTO, warm_up_blocks

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
                decoder_layers=4,
                decoder_embed_dim=128,
                decoder_ffn_embed_dim=512,
                decoder_attention_heads=4,
                decoder_normalize_before=True,
                attention_span=64,
                dropout=0.1,
                attention_dropout=0.1,
            ),
            vocabulary=2000,
            block=32,
            steps=16,
            batch=8,
        ),
        "translation": TranslationSizes(6, 2, 128, 256, 4, vocabulary=2000, words=16, beam=5, batch=8),
        "rl": ReinforcementLearningSizes(True, {}, steps=16, batch=64),
    },
    memory=0.04,
)

# Words or frames per second, by task and phase.
PAPERS: dict[tuple[str, str], dict[str, float]] = {
    ("lm", "training"): {TRANSFORMER: 296e3, SHARED: 84.4e3},
    ("lm", "inference"): {TRANSFORMER: 592, SHARED: 2176},
    ("translation", "training"): {TRANSFORMER: 280e3, SHARED: 126e3},
    ("translation", "inference"): {TRANSFORMER: 3190, SHARED: 5410},
    ("rl", "training"): {TRANSFORMER: 22.3e3, SHARED: 22.3e3},
}


class Work(NamedTuple):
    """Training or inference with one model and batch."""

    prepare: Callable[[], None]  # fills the memory; on a GPU also runs until graphs are captured
    run: Callable[[], None]  # what is timed
    words: int  # words, or frames, that a run processes


class Task(ABC):
    """A task, with models of random parameters: some of ``TRANSFORMER``, ``SHARED`` and ``PER_LAYER``."""

    name: str
    kinds: tuple[str, ...] = (TRANSFORMER, SHARED, PER_LAYER)

    def __init__(self, sizes, device: str):
        self.sizes, self.device = sizes, device

    @abstractmethod
    def training(self, kind: str, batch: int) -> Work:
        """Build a model, and return its training."""

    @abstractmethod
    def inference(self, kind: str, batch: int) -> Work:
        """Build a model, and return its inference."""

    @abstractmethod
    def state_bytes(self, kind: str) -> int:
        """Run inference, and return the bytes that it keeps of the past of one stream: keys and values."""

    def work(self, phase: str, kind: str, batch: int) -> Work:
        """The work of one of ``PHASES``."""
        return (self.training if phase == "training" else self.inference)(kind, batch)

    def repeated(self, function: Callable[[], None], times: int) -> Callable[[], None]:
        """A function that makes so many calls; on a GPU as many as it takes to capture a graph."""
        if self.device.startswith("cuda"):
            times = max(times, warm_up_blocks(AUTO) + 1)

        def loop():
            for _ in range(times):
                function()

        return loop
