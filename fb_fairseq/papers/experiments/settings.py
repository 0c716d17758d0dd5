"""The settings of experiments, as data. Options have fairseq's names, with underscores: what a setting says is what
``fairseq-train`` gets, so that ``dict(lr_scheduler="fixed", warmup_updates=8000)`` becomes ``--lr-scheduler fixed
--warmup-updates 8000``. A value may be a function of the number of updates.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Options = Mapping[str, Any]
SMALL_MODELS = ("feedback_transformer_lm", "relative_transformer_lm", "all_attention_lm")  # of most small settings
ARCHITECTURES = (*SMALL_MODELS, "streaming_lstm_lm")
# (The names in modules.memory.COMPOSITIONS, which would import torch.)
COMPOSITION = re.compile(r"layer(\d+)|weighted|average|same-and-lower|same|previous")


@dataclass(frozen=True)
class Training:
    """How a language model is trained, fine-tuned and evaluated.

    Attributes:
        updates: of training, without fine-tuning.
        lr: fine-tuning has a tenth of it.
        streams: parallel streams in an update, over all processes.
        tokens_per_sample: steps of each stream in an update.
        validate_every: updates between validations, and between checkpoints.
        finetune_updates: further ones; 0: no fine-tuning.
        valid_streams: in validation; each starts with an empty memory.
        test_streams: in the evaluation.
        optimizer: fairseq's name of it.
        options: of training and fine-tuning.
        warmup: of training only.
        bptt_warmup: of training only: they shorten its first blocks.
        post_norm_lr: of post-norm models, if it differs.
    """

    updates: int
    lr: float
    streams: int
    tokens_per_sample: int
    validate_every: int
    finetune_updates: int = 0
    valid_streams: int = 64
    test_streams: int = 8
    optimizer: str = "adam"
    options: Options = field(default_factory=dict)
    warmup: Options = field(default_factory=dict)
    bptt_warmup: Options = field(default_factory=dict)
    post_norm_lr: float | None = None


def change(**fields: Any) -> Callable[[Any], Any]:
    """A function that replaces fields of a setting: ``Model("…", training=change(lr=0.001))``."""
    return lambda setting: replace(setting, **fields)


@dataclass(frozen=True)
class Model:
    """One model of an experiment.

    Attributes:
        arch: ``--arch``.
        options: that set it apart from others of its architecture and depth.
        training: changes the setting's ``Training``.
        evaluation: further options of its evaluation.
        init_from: the Transformer whose parameters it is initialised with (v1 §3.2), by its name.
        finetune_from: the model whose fine-tuned checkpoint it starts from.
    """

    arch: str
    options: Options = field(default_factory=dict)
    training: Callable[[Training], Training] = lambda setting: setting
    evaluation: Options = field(default_factory=dict)
    init_from: str = ""
    finetune_from: str = ""


@dataclass(frozen=True)
class Scale:
    """A language modelling experiment at one size: the papers', or a small one.

    Attributes:
        training: the setting, or a function of the architecture's name.
        models: the default of ``--models``.
        named: the models, by their names in ``--models``.
        architectures: whether ``--models`` also takes the names of architectures.
        model: a function that makes a model of a name, or returns None; for names with numbers in them.
        layers: the default of ``--layers``; empty: the depth is the architecture's.
        shape: the sizes of an architecture at a number of layers; None: ``--layers`` is refused. It raises
            ``UserError`` for a number that does not divide the widths.
    """

    training: Training | Callable[[str], Training]
    models: Sequence[str] = SMALL_MODELS
    named: Mapping[str, Model] = field(default_factory=dict)
    architectures: bool = True
    model: Callable[[str], Model | None] = lambda name: None
    layers: Sequence[int] = ()
    shape: Callable[[str, int], Options] | None = None

    def training_of(self, arch: str) -> Training:
        """The setting of an architecture."""
        return self.training if isinstance(self.training, Training) else self.training(arch)


@dataclass(frozen=True)
class LanguageModeling:
    """An experiment with language models.

    Attributes:
        name: the recipe's.
        summary: one line for the list of recipes.
        corpus: what DATA is.
        metric: of the learning curves: bpb, loss or ppl.
        prompt: text that the step generate continues.
        full: the papers' setting.
        small: one for a CPU.
        against: fields of the results, such as ``lr``, against which they are drawn.
        figure: a module of papers/figures that draws the results, and its file.
        hours: whether the perplexity is also drawn against hours of training.
    """

    name: str
    summary: str
    corpus: str
    metric: str
    prompt: str = "The"
    full: Scale | None = None
    small: Scale | None = None
    against: Sequence[str] = ()
    figure: Sequence[str] = ()
    hours: bool = False


@dataclass(frozen=True)
class TranslationScale:
    """A translation experiment at one size.

    Attributes:
        transformer: the architecture of the vanilla model.
        feedback: that of the feedback decoder.
        updates: of training.
        max_tokens: in an update, over all processes.
        validate_every: updates between validations, and between checkpoints.
        layers: the default of ``--layers``, numbers of decoder layers.
        training: options of training, of all models.
        decoding: options of generation.
        sizes: of the models.
        average: number of last checkpoints to average; 1: the best one is taken.
        lenpens: length penalties to try.
        lengths: options of generation, of the lengths of outputs, to try after that.
        projections: of the model ``feedback``, "per-layer" or "shared". ``initialised`` has per-layer ones by default:
            each has a counterpart in the vanilla model.
        raw: whether there are references before they were tokenised.
        variants: further models: feedback decoders with these other options, of which ``decoder_layers`` is one.
    """

    transformer: str
    feedback: str
    updates: int
    max_tokens: int
    validate_every: int
    layers: Sequence[int]
    training: Options
    decoding: Options
    sizes: Options = field(default_factory=dict)
    average: int = 1
    lenpens: Sequence[float] = (1.0,)
    lengths: Sequence[Options] = ({},)
    projections: str = "per-layer"
    raw: bool = False
    variants: Mapping[str, Options] = field(default_factory=dict)


@dataclass(frozen=True)
class Translation:
    """An experiment with translation or summarization.

    Attributes:
        name: the recipe's.
        summary: one line for the list of recipes.
        corpus: what DATA is.
        pair: source and target language.
        metric: that of tuning: a name of ``score --metrics``, and its key in the JSON.
        full: the papers' setting.
        small: one for a CPU.
        language: of the outputs, for the scores; empty: the target language.
        task: further options of the task.
    """

    name: str
    summary: str
    corpus: str
    pair: Sequence[str]
    metric: Sequence[str]
    full: TranslationScale
    small: TranslationScale
    language: str = ""
    task: Options = field(default_factory=dict)


def initialised(arch: str = "feedback_transformer_lm") -> dict[str, Model]:
    """The Feedback Transformer of this name that starts from the Transformer's parameters, for ``Scale.named``."""
    return {"initialised": Model(arch, init_from=arch.replace("feedback", "relative", 1))}


def composition(name: str) -> dict | None:
    """The options of the Feedback Transformer whose memory composition this is (v1 Table 5, v3 Figures 5 and 8): its
    name, with a number as in layer0, layer1, …; None for other names.
    """
    found = COMPOSITION.fullmatch(name)
    if not found:
        return None
    return dict(memory_projections="per-layer", memory_composition=f"layer:{found[1]}" if found[1] else name)


def composed(name: str, arch: str = "feedback_transformer_lm") -> Model | None:
    """The model with this memory composition; None for other names."""
    options = composition(name)
    return Model(arch, options) if options else None
