"""The command lines of fairseq: a mistake is one line, --help shows all options, and tasks check what is given."""

import sys
from contextlib import suppress
from types import MethodType
from typing import NoReturn

import torch

import fb_fairseq
from fb_fairseq.command_line import CommandParser
from fb_fairseq.errors import flag
from fb_fairseq.patches.error_lines import remedy_of
from fb_fairseq.patches.wrapping import wrap_once


def patch_command_line() -> None:
    """Print one line on a mistake instead of 200 lines of usage, and let --help show the options of the task,
    architecture, … on the same command line, which fairseq adds after it has printed its help.

    ``--bf16`` and ``--fp16`` train on a CPU too. A task can adapt and check further options with a static method
    ``prepare_arguments(args, given)``: ``given`` tells whether an option stands on the command line.
    """
    from fairseq import options

    wrap_once(options, "parse_args_and_arch", "command_line", _parse)


def _error(parser, message: str) -> None:
    CommandParser.error(parser, remedy_of(message) or message)


def _parse(original, parser, input_args=None, parse_known=False, **kwargs):
    from fairseq.tasks import TASK_REGISTRY

    parser.error = MethodType(_error, parser)
    words = sys.argv[1:] if input_args is None else [str(word) for word in input_args]
    if not parse_known and {"-h", "--help"} & set(words):
        _show_help(original, parser, [word for word in words if word not in ("-h", "--help")], **kwargs)
    try:
        parsed = original(parser, input_args, parse_known, **kwargs)
    except (KeyError, RuntimeError) as error:
        missing = _missing_option(error)
        if missing is None:
            raise
        parser.error(f"{missing} (--help lists all)")
    args = parsed[0] if parse_known else parsed

    def given(name: str) -> bool:
        return any(word == flag(name) or word.startswith(f"{flag(name)}=") for word in words)

    if getattr(args, "path", "") is None:
        parser.error("--path is missing; give a checkpoint, for example --path checkpoints/checkpoint_best.pt")
    _prepare_half_precision(args)
    prepare = getattr(TASK_REGISTRY.get(getattr(args, "task", None)), "prepare_arguments", None)
    if prepare is not None:
        prepare(args, given)
    return parsed


def _missing_option(error: Exception) -> str | None:
    """The line for an option without which fairseq's parser fails; None for other errors."""
    if isinstance(error, KeyError) and error.args == (None,):
        return "--task is missing; give one, such as --task streaming_lm"
    if isinstance(error, RuntimeError) and not str(error):
        return "--arch is missing; give one, such as --arch feedback_transformer_lm"
    return None


def _show_help(original, parser, words, **kwargs) -> NoReturn:
    """Let fairseq add the options that ``words`` (without --help) ask for, print the help text, and exit."""

    def stop(*unused, **unused_too):
        raise RuntimeError("all options are added")

    parser.parse_args = stop  # what the original does last
    with suppress(KeyError, RuntimeError):  # the original's own: without --task or --arch
        original(parser, words, **kwargs)
    _show_own_names(parser)
    parser.print_help()
    parser.exit()


def _show_own_names(parser) -> None:
    """Print what this package adds to fairseq's lists, which its help does not show."""
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    registries = {f"--{name}": registry["registry"] for name, registry in REGISTRIES.items()}
    for option, known in {"--task": TASK_REGISTRY, **registries, "--arch": ARCH_MODEL_REGISTRY}.items():
        ours = [name for name, kind in known.items() if kind.__module__.startswith(f"{fb_fairseq.__name__}.")]
        if ours and option in parser.format_usage():
            print(f"{option} of {fb_fairseq.__name__}: {', '.join(ours)}\n")


def _prepare_half_precision(args) -> None:
    """Turn off the TPU that fairseq assumes with --bf16, and flat gradients, which need a GPU, where there is none."""
    if getattr(args, "bf16", False) and "torch_xla" not in sys.modules:
        args.tpu = False
    if getattr(args, "fp16", False) and (getattr(args, "cpu", False) or not torch.cuda.is_available()):
        args.fp16_no_flatten_grads = True
