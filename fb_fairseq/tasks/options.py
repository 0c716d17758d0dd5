"""The options of ``--task streaming_lm``, and the checks that need nothing but the options."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II

from fb_fairseq.errors import UserError, flag
from fb_fairseq.option_fields import option
from fb_fairseq.streams.bptt_warmup import BlockLengths
from fb_fairseq.streams.memory_files import STORAGE_TYPES


@dataclass
class StreamingLMConfig(FairseqDataclass):
    """Options of ``StreamingLMTask``; the last ones are fairseq's own, which streams depend on or cannot use."""

    data: Optional[str] = option(
        None, "folder with dict.txt and the binarised data; of sharded data a:b:… each epoch reads one folder in turn"
    )
    tokens_per_sample: int = option(
        128, "length of a block in steps: how far gradients reach back (M in the papers; default: 128)"
    )
    bptt_warmup_tokens: int = option(
        0,
        "BPTT warm-up: length of the first blocks in steps, which must be --tokens-per-sample divided by 2, 4, 8, …; "
        "there are as many times more streams, so that an iteration has the same number of tokens (default: 0, no "
        "warm-up)",
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
        "uninterrupted one. bfloat16, float16: half of the disk space, and small differences after a resume. none: not "
        "at all; after a resume in mid-epoch each stream starts with an empty memory",
    )
    update_freq: Any = II("optimization.update_freq")
    skip_remainder_batch: Any = II("optimization.skip_remainder_batch")
    train_subset: Any = II("dataset.train_subset")
    batch_size: Any = II("dataset.batch_size")
    batch_size_valid: Any = II("dataset.batch_size_valid")
    max_tokens: Any = II("dataset.max_tokens")
    max_tokens_valid: Any = II("dataset.max_tokens_valid")
    dataset_impl: Any = II("dataset.dataset_impl")


def check_own_options(cfg: StreamingLMConfig) -> None:
    """Check the task's own options, before anything is loaded.

    Raises:
        UserError: an option is out of range, or contradicts another one.
    """
    for name in ("tokens_per_sample", "valid_streams"):
        if getattr(cfg, name) < 1:
            raise UserError(f"{flag(name)} {getattr(cfg, name)}: must be at least 1")
    BlockLengths.from_options(cfg)
    if cfg.labels and str(cfg.sample_break_mode) == "eos":
        raise UserError("--sample-break-mode eos: is for prompts, which --labels does not have; leave it out")


def check_batch_options(cfg: StreamingLMConfig) -> None:
    """Check fairseq's options for batches, for datasets of streams.

    Raises:
        UserError: an option is given that would have no effect on streams, or would drop targets.
    """
    for name in ("max_tokens", "max_tokens_valid"):
        if getattr(cfg, name):
            raise UserError(
                f"{flag(name)} has no meaning on streams: a batch is --batch-size streams of --tokens-per-sample steps"
            )
    if cfg.skip_remainder_batch:
        raise UserError("--skip-remainder-batch would drop targets of every epoch; leave it out")


def check_training_options(cfg: StreamingLMConfig) -> None:
    """Check fairseq's options for batches, for training on streams.

    Raises:
        UserError: ``--batch-size`` is missing, or ``--batch-size-valid`` is given.
    """
    if cfg.batch_size_valid not in (None, cfg.batch_size):  # fairseq sets it to --batch-size by default
        raise UserError("--batch-size-valid has no meaning on streams: use --valid-streams")
    if not cfg.batch_size:
        raise UserError("--batch-size: give the number of streams of each process")
