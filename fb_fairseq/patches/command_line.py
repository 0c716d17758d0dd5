"""Check the values of fairseq's options, and report mistakes on its command line in one line."""

import math
import sys
from argparse import ArgumentTypeError
from types import MethodType
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple

import torch

from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import UserError, flag
from fb_fairseq.literals import parse_literal
from fb_fairseq.patches.help_text import HELP, show_help
from fb_fairseq.patches.ignored_options import check_generation, check_training
from fb_fairseq.patches.wrapping import wrap_once

INFINITY = math.inf
# The lowest and the highest allowed value. fairseq accepts any number, and fails later or not at all.
AT_LEAST_0 = (0, INFINITY)
AT_LEAST_1 = (1, INFINITY)
PROBABILITY = (0, 1)
LIMITS: Dict[str, Tuple[float, float]] = {
    **dict.fromkeys(
        ["batch_size", "batch_size_valid", "max_tokens", "max_tokens_valid", "required_batch_size_multiple"], AT_LEAST_1
    ),
    **dict.fromkeys(["update_freq", "validate_interval", "save_interval", "log_interval"], AT_LEAST_1),
    **dict.fromkeys(["num_shards", "distributed_world_size", "beam", "nbest", "tokens_per_sample"], AT_LEAST_1),
    **dict.fromkeys(
        ["num_workers", "data_buffer_size", "validate_interval_updates", "save_interval_updates"], AT_LEAST_0
    ),
    **dict.fromkeys(
        ["max_epoch", "max_update", "stop_time_hours", "clip_norm", "shard_id", "context_window"], AT_LEAST_0
    ),
    **dict.fromkeys(
        ["lr", "warmup_updates", "weight_decay", "adam_eps", "max_len_a", "max_len_b", "min_len"], AT_LEAST_0
    ),
    **dict.fromkeys(["no_repeat_ngram_size", "prefix_size"], AT_LEAST_0),
    **dict.fromkeys(["dropout", "attention_dropout", "activation_dropout", "relu_dropout"], PROBABILITY),
    **dict.fromkeys(["encoder_layerdrop", "decoder_layerdrop", "label_smoothing", "momentum"], PROBABILITY),
    **dict.fromkeys(["lenpen", "unkpen", "diverse_beam_strength", "lm_weight"], (-INFINITY, INFINITY)),
    **dict.fromkeys(["warmup_init_lr", "min_lr", "max_lr", "end_learning_rate", "lr_shrink"], AT_LEAST_0),
    **dict.fromkeys(["lr_patience", "patience", "diversity_rate", "sampling_topk"], AT_LEAST_0),
    **dict.fromkeys(["lr_period_updates", "total_num_update", "diverse_beam_groups"], AT_LEAST_1),
    "adam_betas": (0, 0.999999),
    "ema_decay": PROBABILITY,
    "sampling_topp": (1e-6, 1),
    "temperature": (1e-6, INFINITY),
    "seed": (0, 2**32 - 1),  # numpy's
    **dict.fromkeys(["fp16_init_scale", "fp16_scale_window"], AT_LEAST_1),
}
OFF = -1  # the default of these, which turns them off
MAY_BE_OFF = (
    *("warmup_init_lr", "lr_period_updates", "patience"),
    *("diversity_rate", "sampling_topk", "sampling_topp", "diverse_beam_groups"),
)
TOO_LARGE = 2**63  # for PyTorch's whole numbers
PAIRS = ("adam_betas",)  # options of two numbers
MAY_BE_INFINITE = ("clip_norm", "max_epoch", "max_update", "stop_time_hours")
BPE_MARK = "@@"  # at the end of a piece of a word, if the word goes on
# Options that hold names of files and folders.
PATHS = ("data", "save_dir", "path", "restore_file", "results_path")


def patch_command_line() -> None:
    """Refuse numbers that make no sense, such as ``--lr=-1``, ``--update-freq 0`` and ``--clip-norm nan``, and print
    one line on a mistake instead of 200 lines of usage; and let --help show the options of the task, architecture, …
    named on the same command line.

    ``--bf16`` and ``--fp16`` train on a CPU too. A task can adapt and check further options with a static method
    ``prepare_arguments(args, given)``: ``given`` tells whether an option stands on the command line.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq checks its options; none does yet.
    """
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
    parser.error = MethodType(CommandParser.error, parser)
    words = sys.argv[1:] if input_args is None else [str(word) for word in input_args]
    if not parse_known and set(HELP) & set(words):
        show_help(original, parser, words, **kwargs)
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
    check_training(vars(args))
    if hasattr(args, "beam"):
        check_generation(args, given)
    if getattr(args, "combine_valid_subsets", False) and "," in (args.valid_subset or ""):
        raise UserError(
            f"--valid-subset {args.valid_subset}: --combine-valid-subsets reads valid, valid1, … as one split; give "
            "one name, or leave --combine-valid-subsets out"
        )
    for name in PATHS:
        if "${" in str(getattr(args, name, "")):
            raise UserError(f"{getattr(args, name)}: fairseq replaces ${{…}} in names; give a name without it")
    _prepare_half_precision(args)
    if hasattr(args, "output_word_stats"):  # fairseq-eval-lm
        args.post_process = _word_pieces(args.post_process)
    prepare = _task_hook(args)
    if prepare is not None:
        prepare(args, given)
    return parsed


def _task_hook(args) -> Optional[Callable]:
    from fairseq.tasks import TASK_REGISTRY

    return getattr(TASK_REGISTRY.get(getattr(args, "task", None)), "prepare_arguments", None)


def _prepare_half_precision(args) -> None:
    """With --bf16 fairseq assumes a TPU, and flat gradients need a GPU: turn both off where they do not apply."""
    if getattr(args, "bf16", False) and "torch_xla" not in sys.modules:
        args.tpu = False
    if getattr(args, "fp16", False) and (args.cpu or not torch.cuda.is_available()):
        args.fp16_no_flatten_grads = True


def _word_pieces(post_process: Optional[str]) -> Optional[str]:
    """What fairseq-eval-lm understands: for ``subword_nmt``, which --remove-bpe gives, it finds no pieces of words."""
    if post_process in (None, "subword_nmt", BPE_MARK, f"{BPE_MARK} "):
        return post_process and f"{BPE_MARK} "
    raise UserError(f"--post-process {post_process}: fairseq-eval-lm joins words of subword-nmt only; leave it out")


def patch_hydra_values() -> None:
    """The same for numbers in the configuration of ``fairseq-hydra-train``, before training.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq checks its options; none does yet.
    """
    from fairseq.trainer import Trainer

    wrap_once(Trainer, "__init__", "hydra_values", _init_trainer)


def _init_trainer(original, self, cfg, *args, **kwargs):
    for group in cfg.values():
        if isinstance(group, Mapping):
            check_values(group)
            check_training(group)
    original(self, cfg, *args, **kwargs)


def check_values(values: Mapping[str, Any]) -> None:
    """Check numbers, also those in lists.

    Raises:
        UserError: one of them is not a number (NaN), or outside of ``LIMITS``; or one is missing.
    """
    for name, value in values.items():
        if name in LIMITS and isinstance(value, Sequence) and not isinstance(value, str) and not len(value):
            raise UserError(f"{flag(name)}: is empty; give a number")
        if name in PAIRS:
            value = _pair(name, value)
        lowest, highest = LIMITS.get(name, (-INFINITY, INFINITY))
        for number in _numbers(value, name in LIMITS):
            if number == OFF and name in MAY_BE_OFF:
                continue
            if math.isnan(number) or name in LIMITS and math.isinf(number) and name not in MAY_BE_INFINITE:
                raise UserError(f"{flag(name)} {value}: must be a finite number")
            if name not in LIMITS and isinstance(value, int) and abs(value) >= TOO_LARGE:
                raise UserError(f"{flag(name)} {value}: is too large")
            if not lowest <= number <= highest:
                bounds = f"{lowest:g} or more" if highest == INFINITY else f"from {lowest:g} to {highest:.10g}"
                off = f", or {OFF} (off)" if name in MAY_BE_OFF else ""
                raise UserError(f"{flag(name)} {value}: must be {bounds}{off}")


def _pair(name: str, value: Any) -> Any:
    """The numbers of an option that fairseq reads as a Python expression, in hydra's configurations also as a list."""
    try:
        pair = parse_literal(value) if isinstance(value, str) else value
    except UserError:
        pair = None
    is_pair = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
    if not is_pair or not all(isinstance(number, (int, float)) for number in pair):
        raise UserError(f"{flag(name)} {value}: must be two numbers in parentheses, such as (0.9, 0.98)")
    return pair


def _numbers(value: Any, from_text: bool) -> Iterator[float]:
    if from_text and isinstance(value, str):  # options whose default is that of another one
        try:
            yield float(value)
        except ValueError:
            pass
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield float(value)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _numbers(item, from_text)
