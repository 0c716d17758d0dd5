"""The options of ``--task streaming_lm``, and the checks that need nothing but the options."""

from argparse import SUPPRESS
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import II

from fb_fairseq.command_line import option
from fb_fairseq.errors import UserError, flag
from fb_fairseq.streams.checkpoints import STORAGE_TYPES
from fb_fairseq.streams.layout import BlockLengths
from fb_fairseq.streams.state import CarriesMemory


@dataclass
class StreamingLMConfig(FairseqDataclass):
    """Options of ``StreamingLMTask``; the last ones are fairseq's own, which streams depend on or cannot use."""

    data: Optional[str] = option(  # noqa: UP045
        None, "folder with dict.txt and the binarised data; with shards a:b:…, each epoch reads the next folder"
    )
    tokens_per_sample: int = option(
        128, "length of a block in steps: how far gradients reach back (M in the papers; default: 128)"
    )
    bptt_warmup_tokens: int = option(
        0,
        "BPTT warm-up: length of the first blocks, in steps; must be --tokens-per-sample divided by 2, 4, 8, …. The "
        "number of streams grows by the same factor, so that the number of tokens per iteration stays the same "
        "(default: 0, no warm-up)",
    )
    bptt_warmup_iterations: int = option(
        0,
        "BPTT warm-up: number of iterations (updates, counted from the start of training) after which the length of "
        "blocks doubles (default: 0, no warm-up)",
    )
    labels: bool = option(
        False,
        "predict the label of each symbol instead of the next symbol: the data consist of inputs and labels "
        "(fairseq-preprocess --source-lang input --target-lang label); the label _ is ignored",
    )
    omit_eos: bool = option(
        False,
        "leave out the </s> at the end of each line: the text is one sequence of words, as in the published Feedback "
        "Transformers before they were fine-tuned on text with </s>. In evaluation: as in training",
    )
    separate_sequences: bool = option(False, SUPPRESS)  # of checkpoints: each sequence began with an empty memory
    sample_break_mode: ChoiceEnum(["none", "eos"]) = option(
        "none",
        "none (the default): read the data as streams. eos: each line (document) is a prompt, for fairseq-generate",
    )
    valid_streams: int = option(
        8,
        "number of streams in validation and evaluation, over all processes; each starts with an empty memory "
        "(default: 8)",
    )
    save_stream_memory: ChoiceEnum([*STORAGE_TYPES, "none"]) = option(
        "exact",
        "how to save the streams' memory beside checkpoint_last.pt. exact (the default): a resumed run equals an "
        "uninterrupted one. bfloat16, float16: half the disk space, with small differences after resuming. none: do "
        "not save it; after resuming in mid-epoch, each stream starts with an empty memory",
    )
    update_freq: Any = II("optimization.update_freq")
    skip_remainder_batch: Any = II("optimization.skip_remainder_batch")
    train_subset: Any = II("dataset.train_subset")
    batch_size: Any = II("dataset.batch_size")
    batch_size_valid: Any = II("dataset.batch_size_valid")
    max_tokens: Any = II("dataset.max_tokens")
    max_tokens_valid: Any = II("dataset.max_tokens_valid")
    dataset_impl: Any = II("dataset.dataset_impl")
    post_process: Any = II("common_eval.post_process")
    output_word_probs: Any = II("eval_lm.output_word_probs")
    output_word_stats: Any = II("eval_lm.output_word_stats")


def check_own_options(cfg: StreamingLMConfig) -> None:
    """Check the task's own options, before anything is loaded."""
    for name in ("tokens_per_sample", "valid_streams"):
        if getattr(cfg, name) < 1:
            raise UserError(f"{flag(name)} {getattr(cfg, name)}: must be at least 1")
    BlockLengths.from_options(cfg)
    if cfg.labels and cfg.omit_eos:
        raise UserError("--omit-eos: is for text, which --labels does not have; leave it out")
    if cfg.labels and str(cfg.sample_break_mode) == "eos":
        raise UserError("--sample-break-mode eos: is for prompts, which --labels does not have; leave it out")


def prepare_arguments(args, given: Callable[[str], bool]) -> None:
    """Adapt fairseq's command line to streams, and check what only the command line tells.

    One rule holds in all commands: ``--batch-size`` is the number of streams of each process in training. In
    ``fairseq-validate`` and ``fairseq-eval-lm`` it is another name of ``--valid-streams``, and in training
    ``--batch-size-valid`` is. (In generation it is the number of prompts, as in fairseq.)

    Args:
        args: the parsed command line; changed in place.
        given: tells whether an option, by its name with underscores, stands on the command line.
    """
    training = hasattr(args, "arch")
    if hasattr(args, "beam"):  # generation
        return
    if training:
        check_architecture(args)
    if str(getattr(args, "sample_break_mode", "")) == "eos":
        raise UserError(
            "--sample-break-mode eos: is for the prompts of fairseq-generate and fairseq-interactive; leave it out "
            "(streams keep </s> between lines), or use --task language_modeling"
        )
    alias = "batch_size_valid" if training else "batch_size"
    if given(alias):
        streams = int(getattr(args, alias))  # (fairseq has it as text)
        if given("valid_streams") and args.valid_streams != streams:
            raise UserError(
                f"{flag(alias)} {streams}, --valid-streams {args.valid_streams}: both are the number of streams in "
                "evaluation; give one of them"
            )
        args.valid_streams = streams
    if training:
        args.batch_size_valid = args.batch_size
    elif getattr(args, "batch_size", 0) is None and args.max_tokens is None:
        args.batch_size = args.valid_streams  # fairseq-validate asks for one of the two


def check_architecture(cfg) -> None:
    """Check that a model carries memory. ``cfg``: a model's configuration, or the parsed command line."""
    name = getattr(cfg, "arch", None) or getattr(cfg, "_name", None)
    kind = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
    if kind is not None and not issubclass(kind, CarriesMemory):
        raise UserError(
            f"--task streaming_lm: {name} carries no memory from block to block; use --task language_modeling, or "
            "--arch relative_transformer_lm for a Transformer with memory"
        )


def check_batch_options(cfg: StreamingLMConfig) -> None:
    """Check fairseq's options for batches, for datasets of streams."""
    for name in ("max_tokens", "max_tokens_valid"):
        if getattr(cfg, name):
            streams = max(1, int(getattr(cfg, name)) // cfg.tokens_per_sample)  # (fairseq has some as text)
            raise UserError(
                f"{flag(name)} has no meaning on streams: a batch is --batch-size streams of --tokens-per-sample "
                f"{cfg.tokens_per_sample} steps; give --batch-size {streams}"
            )
    if cfg.skip_remainder_batch:
        raise UserError("--skip-remainder-batch would drop targets in every epoch; leave it out")


def check_scoring_options(cfg: StreamingLMConfig, shards: int, shard: int) -> None:
    """Check the options of ``fairseq-eval-lm``. ``shards``, ``shard``: ``--num-shards`` and ``--shard-id``."""
    if cfg.labels:
        raise UserError(
            "fairseq-eval-lm scores the next symbol, and this model was trained with --labels; use "
            "fb-fairseq evaluate-labels"
        )
    if cfg.post_process or cfg.output_word_probs or cfg.output_word_stats:
        raise UserError(
            "--remove-bpe, --post-process, --output-word-probs and --output-word-stats: fairseq-eval-lm would count "
            "words that blocks and streams cut; leave them out"
        )
    if not shard < shards <= cfg.valid_streams:
        raise UserError(
            f"--num-shards {shards}, --shard-id {shard}: shards have the numbers 0 to {shards - 1}, and each needs a "
            f"stream; --valid-streams is {cfg.valid_streams}"
        )


def check_training_options(cfg: StreamingLMConfig) -> None:
    """Check fairseq's options for batches, for training on streams."""
    if cfg.batch_size_valid not in (None, cfg.batch_size):  # fairseq sets it to --batch-size by default
        raise UserError("--batch-size-valid: give the number of streams in evaluation with --valid-streams")
    if not (cfg.batch_size or 0) > 0:
        raise UserError("--batch-size: give the number of streams of each process")
