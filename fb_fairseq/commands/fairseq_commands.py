"""fairseq's commands with this plugin loaded, from any folder, however the package is installed."""

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Mapping

import fb_fairseq
from fb_fairseq import pretrained
from fb_fairseq.checksums import checksum_of
from fb_fairseq.command_line import converted
from fb_fairseq.errors import fail

NAME = fb_fairseq.__name__
USER_DIR = "--user-dir"
HYDRA_USER_DIR = "common.user_dir="
PACKAGE = os.path.abspath(fb_fairseq.__path__[0])


def run_fairseq(name: str, argv: list[str]) -> int | None:
    """Run one of fairseq's commands as the main program: its usage, log and error messages have its own name.

    ``name``: of the command, such as ``eval-lm``.
    """
    try:
        module = importlib.import_module(f"fairseq_cli.{name.replace('-', '_')}")
        for ours in ("tasks", "models"):  # after the command's module, which the patches look for
            importlib.import_module(f"{NAME}.{ours}")
    except ImportError as error:
        return fail(name, error)
    from torch.nn import Module

    for handler in logging.root.handlers:  # not pages of configuration and layers; a --log-file has them
        handler.addFilter(lambda record: not isinstance(record.msg, (Mapping, Module, argparse.Namespace)))
    argv = converted(argv, "--path", checkpoint_of)
    sys.argv = [f"fairseq-{name}", *(with_hydra_user_dir(argv) if name == "hydra-train" else with_user_dir(argv))]
    return module.cli_main()


def checkpoint_of(path: str) -> str:
    """The path of a checkpoint. Of the name of a model that comes with the package: that of a checkpoint which is made
    of it at the first call, in the user's cache. Its folder has the checksums of the model's files and the versions of
    this package and fairseq in its name: what other versions have made is not read.
    """
    folder = pretrained.find(path)
    if folder == path:
        return path
    from fb_fairseq import patches  # noqa: F401  before fairseq is used

    # isort: split
    from fairseq import __version__ as version

    from fb_fairseq.commands.import_transformers import convert
    from fb_fairseq.ops.feedback.cpp.library import cache_folder

    files = (checksum_of(os.path.join(folder, name)) for name in ("model.safetensors", "config.json"))
    made = cache_folder() / "-".join([path, *files, fb_fairseq.__version__, version])
    made.mkdir(parents=True, exist_ok=True)
    out = str(made / "model.pt")
    if not os.path.exists(out):
        convert(folder, out)
    return out


def with_user_dir(argv: list[str]) -> list[str]:
    """The arguments with this package as ``--user-dir``, which processes that fairseq starts need. Another one stays;
    this package's name stands for its path.
    """
    if not any(word.partition("=")[0] == USER_DIR for word in argv):
        return [USER_DIR, PACKAGE, *argv]
    return converted(argv, USER_DIR, lambda folder: PACKAGE if folder == NAME else folder)


def with_hydra_user_dir(argv: list[str]) -> list[str]:
    """The overrides of ``fairseq-hydra-train`` with this package as ``common.user_dir``, as ``with_user_dir``."""
    ours = f"{HYDRA_USER_DIR}{PACKAGE}"
    if any(word.startswith(HYDRA_USER_DIR) for word in argv):
        return [ours if word == f"{HYDRA_USER_DIR}{NAME}" else word for word in argv]
    overrides = (place for place, word in enumerate(argv) if "=" in word and not word.startswith("-"))
    place = next(overrides, len(argv))
    return [*argv[:place], ours, *argv[place:]]
