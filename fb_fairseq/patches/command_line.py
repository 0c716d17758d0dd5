"""Options of fairseq: mistakes in one line, values with which training would go wrong unnoticed, files and folders; and
any other mistake of a user's in one line."""

import math
import os
import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from tempfile import TemporaryDirectory
from types import MethodType
from typing import Any

import numpy as np
import torch

from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import (
    OUTPUT_CLOSED_STATUS,
    STATUS,
    UserError,
    debugging,
    explain,
    flag,
    forget_output,
    names_an_option,
)
from fb_fairseq.files import check_output_folder, lock_folder
from fb_fairseq.literals import parse_literal
from fb_fairseq.patches.stopping import training_modules
from fb_fairseq.patches.wrapping import wrap_once

# The lowest and the highest value. With others, fairseq trains without a word: away from the minimum, or on noise.
AT_LEAST_0, PROBABILITY = (0, math.inf), (0, 1)
LIMITS = {
    **dict.fromkeys(["lr", "min_lr", "max_lr", "end_learning_rate", "lr_shrink", "warmup_init_lr"], AT_LEAST_0),
    **dict.fromkeys(["weight_decay", "adam_eps", "clip_norm"], AT_LEAST_0),
    **dict.fromkeys(
        ["label_smoothing", "momentum", "ema_decay", "encoder_layerdrop", "decoder_layerdrop"], PROBABILITY
    ),
    "adam_betas": (0, 0.999999),
    "update_freq": (1, math.inf),
    "beam": (1, math.inf),
}
OFF = {"warmup_init_lr": -1}  # a default that turns the option off
TOO_LARGE = 2**63  # for PyTorch's whole numbers
BPE_MARK = "@@"  # at the end of a piece of a word, if the word goes on
INVALID_CHOICE = re.compile(r"(argument \S+: invalid choice: '(.*?)') \(choose from (.*)\)", re.DOTALL)
# Patterns in ``KindOfError: its message``, or in a message of the parser, and the line to print instead; {1} is the
# pattern's first group.
REMEDIES = {
    r"unrecognized arguments: (.*--(tokens-per-sample|valid-streams)\b.*)": (
        "unrecognized arguments: {1}; give --task streaming_lm, which has such options"
    ),
    r"nterpolation key 'task\.": (
        "--task: not one for this --arch (without the option it is translation); give --task streaming_lm"
    ),
    r"nterpolation key '(\w*)": "${{{1}}}: fairseq replaces this in a value; give a value without it",
    "optimizer is required": "--optimizer is missing; give one, such as --optimizer adam",
    r"out of range\s+full_key: lr\b": "--lr: is empty; give a number",
    r"out of range\s+full_key: update_freq\b": "--update-freq: is empty; give a number",
    r"Dataset not loaded: (\w+)": (
        "--valid-subset: {1} is not among what --combine-valid-subsets reads: valid, valid1, …; leave one of them out"
    ),
    "Seed must be between": "--seed: must be between 0 and 4294967295",
    "not compiled with CUDA|Cannot re-initialize CUDA|CUDA driver init|No CUDA GPUs|no NVIDIA driver": (
        "PyTorch finds no GPU that it can use; add --cpu, and leave out --profile"
    ),
    r"world size is (\d+) but have (\d+) available devices": (
        "--distributed-world-size {1}: this machine has {2} GPUs for it; leave the option out, or start that many "
        "processes with torchrun --nproc-per-node {1} (on CPUs too)"
    ),
    "FloatingPointError: gradients are Nan/Inf": (
        "the gradients are NaN or infinite; try a lower --lr, --clip-norm 1 or more --warmup-updates"
    ),
    "Could not infer language pair": (
        "no data of a pair of languages in the folder; give that of fairseq-preprocess, or --source-lang and "
        "--target-lang"
    ),
    r"Dataset not found: (\S+) \((.+)\)": (
        "{2}: the split {1} is missing; check the folder and --train-subset, --valid-subset or --gen-subset"
    ),
}
HYDRA_COMMAND = "fairseq_cli.hydra_train"
# In the traceback that torch.multiprocessing.spawn makes the message of its own exception.
FROM_SPAWNED_PROCESS = re.compile(rf"^{UserError.__module__}\.{UserError.__qualname__}: (.+)$", re.MULTILINE)


def patch_command_line() -> None:
    """Refuse numbers with which training would go wrong unnoticed, such as ``--lr=-1``, and print one line on a mistake
    instead of 200 lines of usage; and let --help show the options of the task, architecture, … on the same command
    line, which fairseq adds after it has printed its help.

    ``--bf16`` and ``--fp16`` train on a CPU too. A task can adapt and check further options with a static method
    ``prepare_arguments(args, given)``: ``given`` tells whether an option stands on the command line."""
    from fairseq import options
    from fairseq.dataclass import utils

    wrap_once(options, "parse_args_and_arch", "command_line", _parse)
    wrap_once(utils, "eval_str_list", "command_line", _list_of)


def _list_of(original, x, x_type=float):
    """The numbers of an option such as --update-freq; fairseq takes 2.5 for 2 where it wants whole numbers."""
    numbers = original(x, x_type)
    if x_type is int and numbers is not None and numbers != original(x, float):
        raise ArgumentTypeError(f"{x}: must be whole numbers")  # argparse names the option
    return numbers


def _parse(original, parser, input_args=None, parse_known=False, **kwargs):
    parser.error = MethodType(_error, parser)
    words = sys.argv[1:] if input_args is None else [str(word) for word in input_args]
    if not parse_known and {"-h", "--help"} & set(words):
        _show_help(original, parser, [word for word in words if word not in ("-h", "--help")], **kwargs)
    try:
        parsed = original(parser, input_args, parse_known, **kwargs)
    except KeyError as error:
        if error.args != (None,):
            raise
        parser.error("--task is missing; give one, such as --task streaming_lm (--help lists all)")
    except RuntimeError as error:
        if str(error):
            raise
        parser.error("--arch is missing; give one, such as --arch feedback_transformer_lm (--help lists all)")
    args = parsed[0] if parse_known else parsed

    def given(name: str) -> bool:
        return any(word == flag(name) or word.startswith(f"{flag(name)}=") for word in words)

    check_values(vars(args))
    _prepare_half_precision(args)
    if hasattr(args, "output_word_stats"):  # fairseq-eval-lm
        args.post_process = _word_pieces(args.post_process)
    prepare = _task_hook(args)
    if prepare is not None:
        prepare(args, given)
    return parsed


def _error(parser, message: str) -> None:
    """Print the message, or its remedy; of a choice that does not exist, the nearest ones instead of all."""
    message = remedy_of(message) or message
    found = INVALID_CHOICE.search(message)
    if found and found[3].count(",") > 20:
        close = get_close_matches(found[2], re.findall(r"[\w.-]+", found[3]), 3)
        message = f"{found[1]}; did you mean {' or '.join(close)}?" if close else f"{found[1]}; --help lists all"
    CommandParser.error(parser, message)


def _show_help(original, parser, words, **kwargs):
    def show(*unused, **unused_too):
        parser.print_help()
        parser.exit()

    parser.parse_args = show  # what the original does last
    with suppress(KeyError, RuntimeError):  # without --task or --arch
        original(parser, words, **kwargs)
    show()


def _task_hook(args) -> Callable | None:
    from fairseq.tasks import TASK_REGISTRY

    return getattr(TASK_REGISTRY.get(getattr(args, "task", None)), "prepare_arguments", None)


def _prepare_half_precision(args) -> None:
    """With --bf16 fairseq assumes a TPU, and flat gradients need a GPU: turn both off where they do not apply."""
    if getattr(args, "bf16", False) and "torch_xla" not in sys.modules:
        args.tpu = False
    if getattr(args, "fp16", False) and (args.cpu or not torch.cuda.is_available()):
        args.fp16_no_flatten_grads = True


def _word_pieces(post_process: str | None) -> str | None:
    """The value that fairseq-eval-lm understands. (``subword_nmt``, which --remove-bpe gives, it does not.)"""
    if post_process in (None, "subword_nmt", BPE_MARK, f"{BPE_MARK} "):
        return post_process and f"{BPE_MARK} "
    raise UserError(f"--post-process {post_process}: fairseq-eval-lm joins words of subword-nmt only; leave it out")


def patch_hydra_values() -> None:
    """Check the numbers in the configuration of ``fairseq-hydra-train``, too, before training."""
    from fairseq.trainer import Trainer

    wrap_once(Trainer, "__init__", "hydra_values", _init_trainer)


def _init_trainer(original, self, cfg, *args, **kwargs):
    for group in cfg.values():
        if isinstance(group, Mapping):
            check_values(group)
    original(self, cfg, *args, **kwargs)


def check_values(values: Mapping[str, Any]) -> None:
    """Check numbers, also those in lists: none is NaN, too large, or outside of ``LIMITS``."""
    for name, value in values.items():
        if name == "write_checkpoints_asynchronously" and value:
            raise UserError(f"{flag(name)}: fairseq then writes no checkpoint_last.pt to resume from; leave it out")
        if name == "adam_betas" and isinstance(value, str):
            value = parse_literal(value)
        lowest, highest = LIMITS.get(name, (-math.inf, math.inf))
        for number in value if isinstance(value, Sequence) and not isinstance(value, str) else [value]:
            if not isinstance(number, (int, float)) or isinstance(number, bool) or number == OFF.get(name):
                continue
            if math.isnan(number):
                raise UserError(f"{flag(name)} {value}: must be a number")
            if isinstance(number, int) and abs(number) >= TOO_LARGE:
                raise UserError(f"{flag(name)} {value}: is too large")
            if not lowest <= number <= highest:
                bounds = f"{lowest:g} or more" if highest == math.inf else f"from {lowest:g} to {highest:.10g}"
                raise UserError(f"{flag(name)} {value}: must be {bounds}")


def patch_restore_file() -> None:
    """Refuse a --restore-file or --finetune-from-model that does not exist. fairseq trains from scratch."""
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "load_checkpoint", "restore_file", _load_existing_checkpoint)


def _load_existing_checkpoint(original, cfg, trainer, **kwargs):
    from fairseq.dataclass.configs import CheckpointConfig
    from fairseq.file_io import PathManager

    if cfg.restore_file != CheckpointConfig.restore_file:
        path = cfg.restore_file.replace(".pt", f"{trainer.checkpoint_suffix or ''}.pt")
        if not PathManager.isfile(path):
            raise UserError(
                f"--restore-file {path}: no such file; give a checkpoint, or leave it out to resume from the "
                "checkpoint_last.pt in --save-dir, if there is one"
            )
    if cfg.finetune_from_model is not None and not PathManager.isfile(cfg.finetune_from_model):
        raise UserError(f"--finetune-from-model {cfg.finetune_from_model}: no such file; give a checkpoint")
    return original(cfg, trainer, **kwargs)


def patch_save_dir_lock() -> None:
    """Let one run at a time write to a --save-dir. Two would overwrite each other's checkpoints.

    Say what is wrong with one that cannot be written to. fairseq also removes a file ``dummy`` there."""
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "load_checkpoint", "save_dir_lock", _load_and_lock)
    wrap_once(checkpoint_utils, "verify_checkpoint_directory", "save_dir_check", _check)


def _check(original, save_dir):
    check_output_folder("--save-dir", save_dir)
    try:
        os.makedirs(save_dir, exist_ok=True)
        with TemporaryDirectory(prefix=".incomplete-", dir=save_dir):
            pass
    except OSError as error:
        raise UserError(f"--save-dir {save_dir}: {error.strerror}; give a folder that can be written to") from None


def _load_and_lock(original, cfg, trainer, **kwargs):
    loaded = original(cfg, trainer, **kwargs)  # first, so that a run that is refused leaves nothing behind
    if trainer.data_parallel_rank == 0 and not cfg.no_save:
        lock_folder("--save-dir", cfg.save_dir)
    return loaded


def remedy(error: BaseException) -> str | None:
    """The line for an error, or for the error whose handling has raised it. (After NaN gradients, fairseq repeats the
    update to find their origin, and may fail in that.)"""
    line = remedy_of(f"{type(error).__name__}: {error}")
    return line or (None if error.__context__ is None else remedy(error.__context__))


def remedy_of(message: str) -> str | None:
    """The line for a message, of ``REMEDIES``."""
    for pattern, line in REMEDIES.items():
        found = re.search(pattern, message)
        if found:
            return line.format(found[0], *found.groups())
    return None


def patch_best_metric() -> None:
    """Save a checkpoint before the end of a training that lacks its --best-checkpoint-metric.

    Only the first validation shows what a criterion and a task measure, and fairseq fails then, before it saves."""
    for module in training_modules():
        wrap_once(module, "validate", "best_metric", _validate)


def _validate(original, cfg, trainer, task, epoch_itr, subsets):
    from fairseq import checkpoint_utils

    try:
        return original(cfg, trainer, task, epoch_itr, subsets)
    except KeyError as error:
        metric = cfg.checkpoint.best_checkpoint_metric
        if error.args != (metric,):
            raise
        if not cfg.checkpoint.no_save:
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
        raise UserError(
            f"--best-checkpoint-metric {metric}: validation does not measure it; give a measure that its log has (a "
            "checkpoint is saved, unless with --no-save)"
        ) from None


def patch_empty_splits() -> None:
    """Name the split of which no sample is left, and the option that leaves them out. fairseq only says that the
    dataset is empty."""
    from fairseq.tasks import FairseqTask

    wrap_once(FairseqTask, "filter_indices_by_size", "empty_splits", _filter)


def _filter(original, self, indices, dataset, max_positions=None, *args, **kwargs):
    kept = original(self, indices, dataset, max_positions, *args, **kwargs)
    if len(indices) and not len(kept):
        split = next((name for name, known in self.datasets.items() if known is dataset), "the split")
        limits = max_positions if isinstance(max_positions, tuple) else (max_positions,)
        names = ("source", "target") if len(limits) == 2 else ("target",)
        found = zip(names, np.ravel(dataset.size(indices[0])), limits)
        options = [f"--max-{name}-positions" for name, size, limit in found if size > (limit or size)]
        raise UserError(
            f"{split}: all {len(indices)} samples are longer than {max_positions} tokens, and left out; give more with "
            f"{' and '.join(options)}, or --max-tokens"
        )
    return kept


def patch_error_lines() -> None:
    """Print one line and exit with status 2 on errors that the user can fix; ``FB_FAIRSEQ_DEBUG=1`` shows tracebacks.

    Only in programs that run one of fairseq's commands. hydra would print its own traceback, which fails on Python
    3.10, unless it is told to pass errors on."""
    is_installed = isinstance(sys.excepthook, partial) and sys.excepthook.func is report
    if not is_installed and any(name.startswith("fairseq_cli.") for name in sys.modules):
        sys.excepthook = partial(report, sys.excepthook)
    if HYDRA_COMMAND in sys.modules:
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")


def report(original: Callable, kind, error, traceback) -> None:
    """An ``excepthook``: one line for a user's mistake, the original hook's report for everything else."""
    if isinstance(error, BrokenPipeError):
        forget_output()
        raise SystemExit(OUTPUT_CLOSED_STATUS)
    line = one_line(error)
    if line is None or debugging() or hasattr(sys, "ps1"):  # interactive
        original(kind, error, traceback)
        return
    sys.stdout.flush()
    # Not sys.stderr: torch.distributed wraps this hook, and keeps what it writes until the hook returns.
    print(f"{os.path.basename(sys.argv[0])}: error: {line}", file=sys.__stderr__, flush=True)
    sys.unraisablehook = lambda unraisable: None  # errors of objects that were half built say nothing more
    raise SystemExit(STATUS)  # Python exits with this status


def one_line(error: BaseException) -> str | None:
    """The line of ``explain``, also for an error in a process that ``torch.multiprocessing`` has started; that of
    ``remedy``; or fairseq's own message if it is one line that names an option. None: show the traceback."""
    from_process = FROM_SPAWNED_PROCESS.findall(str(error))
    line = explain(error) or (from_process[-1] if from_process else remedy(error))
    return line or (str(error) if names_an_option(error) else None)
