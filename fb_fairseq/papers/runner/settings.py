"""The settings of experiments, as data.

Options have fairseq's names, with underscores: what a setting says is what ``fairseq-train`` gets, so that
``dict(lr_scheduler="fixed", warmup_updates=8000)`` becomes ``--lr-scheduler fixed --warmup-updates 8000``.
"""

from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from fb_fairseq.errors import flag

Options = Mapping[str, Any]


def words(options: Options) -> List[str]:
    """Options as words of a command line.

    ``True`` stands for an option without a value; options that are ``False`` or None are left out.
    """
    line: List[str] = []
    for name, value in options.items():
        if value is True:
            line.append(flag(name))
        elif value is not False and value is not None:
            line += [flag(name), number(value) if isinstance(value, float) else str(value)]
    return line


def number(value: float) -> str:
    """A decimal number, rounded to six digits and without an exponent: 0.00015."""
    return f"{Decimal(repr(float(f'{value:.6g}'))):f}"


@dataclass(frozen=True)
class Share:
    """A share of the number of updates, rounded down or up: ``Share(1, 3)`` is a third."""

    part: int
    of: int
    up: bool = False

    def resolve(self, updates: int) -> int:
        """The number of updates."""
        exact = Fraction(updates * self.part, self.of)
        return -(-exact // 1) if self.up else exact // 1


@dataclass(frozen=True)
class Training:
    """How a language model is trained, fine-tuned and evaluated.

    Attributes:
        source: where the values come from: paper, table and column.
        updates: of training.
        lr: its learning rate; fine-tuning has a tenth of it.
        streams: the number of parallel streams in an update, over all processes.
        tokens_per_sample: steps of each stream in an update.
        validate_every: updates between validations, and between checkpoints.
        finetune_updates: of fine-tuning; 0: none.
        valid_streams: streams in validation. Each starts with an empty memory.
        test_streams: streams in the evaluation.
        optimizer: fairseq's name.
        options: of training and fine-tuning.
        warmup: options of training only.
        bptt_warmup: options of training only, which shorten its first blocks.
        post_norm_lr: the learning rate of post-norm models, if it differs.
    """

    source: str
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
    post_norm_lr: Optional[float] = None

    def resolved(self, options: Options) -> Dict[str, Any]:
        """The options, with shares of the updates as numbers."""
        return resolved(options, self.updates)


def resolved(options: Options, updates: int) -> Dict[str, Any]:
    """The options, with every ``Share`` as a number of updates."""
    return {name: value.resolve(updates) if isinstance(value, Share) else value for name, value in options.items()}


def change(**fields: Any) -> Callable[[Any], Any]:
    """A function that replaces fields of a setting: ``Model("…", training=change(lr=0.001))``."""
    return lambda setting: replace(setting, **fields)


def unchanged(setting: Any) -> Any:
    """The setting itself."""
    return setting


@dataclass(frozen=True)
class Model:
    """One model of an experiment.

    Attributes:
        arch: its architecture, ``--arch``.
        options: whatever sets it apart from other models of its architecture and depth.
        training: what it changes in the setting's ``Training``.
        evaluation: further options of its evaluation.
        init_from: the Transformer whose parameters it is initialised with (v1 §3.2), by its name in the experiment.
        finetune_from: the model whose fine-tuned checkpoint it starts from.
    """

    arch: str
    options: Options = field(default_factory=dict)
    training: Callable[[Training], Training] = unchanged
    evaluation: Options = field(default_factory=dict)
    init_from: str = ""
    finetune_from: str = ""


@dataclass(frozen=True)
class Scale:
    """A language modelling experiment at one size: the papers', or a small one.

    Attributes:
        training: the setting; or a function that chooses one by the name of the architecture.
        models: the default of ``--models``.
        named: the models, by their names in ``--models``. Other names are architectures, where ``architectures`` says
            so.
        architectures: whether ``--models`` also takes the names of architectures.
        model: a function that makes a model of a name, or returns None; for names with numbers in them.
        layers: the default of ``--layers``; empty: the depth is the architecture's.
        shape: a function that gives the sizes of an architecture at a number of layers; None: ``--layers`` is refused.
            It raises ``UserError`` for a number that does not divide the widths.
    """

    training: Union[Training, Callable[[str], Training]]
    models: Sequence[str]
    named: Mapping[str, Model] = field(default_factory=dict)
    architectures: bool = True
    model: Optional[Callable[[str], Optional[Model]]] = None
    layers: Sequence[int] = ()
    shape: Optional[Callable[[str, int], Options]] = None

    def training_of(self, arch: str) -> Training:
        """The setting of an architecture."""
        return self.training if isinstance(self.training, Training) else self.training(arch)


def equal_parameters(arch: str, ffn: int, vectors: Optional[int] = None, activation_dropout: float = 0) -> Options:
    """Options of the feed-forward sublayers, with which the small models have the same number of parameters, but for
    the 1 + layers memory weights of the Feedback Transformer.

    Args:
        arch: the architecture.
        ffn: the feed-forward width.
        vectors: the number of persistent vectors with as many parameters, if it is not ``ffn``.
        activation_dropout: of models with feed-forward sublayers.
    """
    if arch == "all_attention_lm":
        return dict(persistent_memory_size=vectors or ffn)
    options = dict(decoder_ffn_embed_dim=ffn, activation_dropout=activation_dropout or None)
    if arch == "feedback_transformer_lm":
        options.update(memory_projections="per-layer")
    return options
