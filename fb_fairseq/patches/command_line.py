"""Options of fairseq: --help, files and folders; a user's mistakes in one line."""

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import MethodType

import torch

import fb_fairseq
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
from fb_fairseq.patches.wrapping import training_modules, wrap_once

# Patterns in ``KindOfError: its message``, or in a message of the parser, and the line to print instead; {1} is the
# pattern's first group.
REMEDIES = {
    r"(argument \S+: invalid choice: '.*?') \(choose from .{500}": "{1}; --help lists all",
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
    r"Cannot load model parameters from checkpoint (.+); please": (
        "{1}: has the parameters of another model; give the options of its training, or another --save-dir"
    ),
    r"Dataset not found: (\S+) \((.+)\)": (
        "{2}: the split {1} is missing; check the folder and --train-subset, --valid-subset or --gen-subset"
    ),
}
HYDRA_COMMAND = "fairseq_cli.hydra_train"
# In the traceback that torch.multiprocessing.spawn makes the message of its own exception.
FROM_SPAWNED_PROCESS = re.compile(rf"^{UserError.__module__}\.{UserError.__qualname__}: (.+)$", re.MULTILINE)


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

    if getattr(args, "path", "") is None:
        parser.error("--path is missing; give a checkpoint, for example --path checkpoints/checkpoint_best.pt")
    _prepare_half_precision(args)
    prepare = _task_hook(args)
    if prepare is not None:
        prepare(args, given)
    return parsed


def _show_help(original, parser, words, **kwargs):
    def show(*unused, **unused_too):
        _show_own_names(parser)
        parser.print_help()
        parser.exit()

    parser.parse_args = show  # what the original does last
    with suppress(KeyError, RuntimeError):  # without --task or --arch
        original(parser, words, **kwargs)
    show()


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


def _task_hook(args) -> Callable | None:
    from fairseq.tasks import TASK_REGISTRY

    return getattr(TASK_REGISTRY.get(getattr(args, "task", None)), "prepare_arguments", None)


def _prepare_half_precision(args) -> None:
    """Turn off the TPU that fairseq assumes with --bf16, and flat gradients, which need a GPU, where there is none."""
    if getattr(args, "bf16", False) and "torch_xla" not in sys.modules:
        args.tpu = False
    if getattr(args, "fp16", False) and (args.cpu or not torch.cuda.is_available()):
        args.fp16_no_flatten_grads = True


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

    Say what is wrong with one that cannot be written to. fairseq also removes a file ``dummy`` there.
    """
    from fairseq import checkpoint_utils

    wrap_once(checkpoint_utils, "load_checkpoint", "save_dir_lock", _load_and_lock)
    wrap_once(checkpoint_utils, "verify_checkpoint_directory", "save_dir_check", _check)


def _check(original, save_dir):
    check_output_folder("--save-dir", save_dir)
    os.makedirs(save_dir, exist_ok=True)


def _load_and_lock(original, cfg, trainer, **kwargs):
    loaded = original(cfg, trainer, **kwargs)  # first, so that a run that is refused leaves nothing behind
    if trainer.data_parallel_rank == 0 and not cfg.no_save:
        lock_folder("--save-dir", cfg.save_dir)
    return loaded


def remedy_of(message: str) -> str | None:
    """The line for a message, of ``REMEDIES``."""
    for pattern, line in REMEDIES.items():
        found = re.search(pattern, message)
        if found:
            return line.format(found[0], *found.groups())
    return None


def patch_best_metric() -> None:
    """Save a checkpoint before the end of a training that lacks its --best-checkpoint-metric.

    Only the first validation shows what a criterion and a task measure, and fairseq fails then, before it saves.
    """
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


def patch_error_lines() -> None:
    """Print one line and exit with status 2 on errors that the user can fix; ``FB_FAIRSEQ_DEBUG=1`` shows tracebacks.

    Only in programs that run one of fairseq's commands. hydra would print its own traceback, which fails on Python
    3.10, unless it is told to pass errors on.
    """
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
    """The line for a user's mistake, or fairseq's own message if it is one line that names an option. None: show the
    traceback.

    It may be the mistake of an error in whose handling this one was raised: fairseq replaces what goes wrong while a
    checkpoint is loaded and, after NaN gradients, repeats the update to find their origin, and may fail in that. Or of
    one in a process that ``torch.multiprocessing`` has started.
    """
    errors = [error]
    while errors[-1].__context__ is not None:
        errors.append(errors[-1].__context__)
    line = explain(next((one for one in errors if isinstance(one, UserError)), error))
    from_process = FROM_SPAWNED_PROCESS.findall(str(error))
    remedies = (remedy_of(f"{type(one).__name__}: {one}") for one in errors)
    line = line or (from_process[-1] if from_process else next(filter(None, remedies), None))
    return line or (str(error) if names_an_option(error) else None)
