"""One line about an error before the first update: hardly ever a fault in the program, and soon repeated."""

import argparse
import linecache
import os
import re
import sys
import sysconfig
from traceback import walk_tb
from types import FrameType
from typing import Dict, Iterator, List, Optional, Tuple

from fb_fairseq.errors import DEBUG_VARIABLE, flag, single_line

COMMANDS = "fairseq_cli"
LONGEST = 300  # characters of a message
LINES_BEFORE = 3  # what a statement begins with, or its condition, may stand so many lines above
SHORTEST = 5  # letters of an option's name that is looked for in messages: "data" and "lr" are words like others
CONVERSION = "_override_attr"  # of fairseq.dataclass.utils: converts the options of a group, named k, one by one
# The options that choose a class of these packages of fairseq.
PARTS = {"criterions": "criterion", "optim.lr_scheduler": "lr_scheduler", "optim": "optimizer", "scoring": "scoring"}
# Kinds of errors whose message says it all; of the others, the kind is a part of what is said.
PLAIN = (AssertionError, ImportError, OSError, RuntimeError, ValueError)
TERMINAL_COLORS = re.compile(r"\x1b\[[\d;]*m")


def early_line(error: BaseException, traceback) -> Optional[str]:
    """One line about any error before the first update, with the option that it comes from if that can be told.

    None, so that the traceback is shown, if updates are done already, in whose repetition much time would be lost; or
    if code that is neither fairseq's, nor ours, nor installed takes part, such as another ``--user-dir``, whose author
    needs it.
    """
    frames = list(walk_tb(traceback))
    if not frames or not isinstance(error, Exception) or updates_done(traceback) or not _in_libraries(frames):
        return None
    error = _in_configuration(error)
    option = option_at_fault(error, traceback)
    return f"{option + ': ' if option else ''}{_message(error, *frames[-1])}; {DEBUG_VARIABLE}=1 shows where"


def updates_done(traceback) -> int:
    """The updates of the trainer that an error's traceback passes through; 0 without one."""
    from fairseq.trainer import Trainer

    for frame, _ in walk_tb(traceback):
        for value in (frame.f_locals.get("trainer"), frame.f_locals.get("self")):
            if isinstance(value, Trainer):
                return getattr(value, "_num_updates", 0)
    return 0


def given_options() -> Dict[str, str]:
    """The options on the command line as they are written there, by the name of their value: of hydra's overrides, the
    part after the last dot."""
    options: Dict[str, str] = {}
    words = sys.argv[1:]
    for word, following in zip(words, [*words[1:], "--"]):
        name, has_value, _ = word.lstrip("+").partition("=")
        if name.startswith("--"):
            alone = has_value or following.startswith("--")
            options[name[2:].replace("-", "_")] = single_line(word if alone else f"{word} {following or repr('')}")
        elif has_value and name.replace(".", "_").isidentifier():
            options[name.rpartition(".")[2]] = single_line(word)
    return options


def option_at_fault(error: BaseException, traceback) -> Optional[str]:
    """The given option that an error comes from.

    That is: the one that is being parsed, or whose key a configuration's error names; the one that the code reads where
    the error was raised or, called from there, a few lines above; the one that chose the class which raised it; or the
    one that the message mentions.
    """
    options = given_options()
    frames = list(walk_tb(traceback))[::-1]
    key = (getattr(_in_configuration(error), "full_key", None) or "").partition("[")[0].rpartition(".")[2]
    for frame, _ in frames:
        variables = frame.f_locals
        if isinstance(variables.get("action"), argparse.Action) and "arg_string" in variables:
            return f"{variables['action'].option_strings[-1]} {variables['arg_string']}"
        if frame.f_code.co_name == CONVERSION:
            key = key or variables.get("k", "")
    if key:
        return options.get(key, flag(key))
    for before in (0, LINES_BEFORE):
        for frame, line in frames:
            for number in range(line, max(line - before, frame.f_code.co_firstlineno) - 1, -1):
                for name in _options_read(linecache.getline(frame.f_code.co_filename, number)):
                    if name in options:
                        return options[name]
    for frame, _ in frames:
        module = frame.f_globals.get("__name__", "")
        part = next((name for prefix, name in PARTS.items() if module.startswith(f"fairseq.{prefix}.")), None)
        if part in options:
            return options[part]
    named = (name for name in options if len(name) >= SHORTEST and re.search(rf"\b{name}\b", str(error)))
    return next((options[name] for name in named), None)


def _in_configuration(error: BaseException) -> BaseException:
    """The error itself, or that of a configuration's value, of which hydra says only that it cannot be merged."""
    return error.__cause__ if error.__cause__ is not None and hasattr(error.__cause__, "full_key") else error


def _options_read(source: str) -> List[str]:
    """The names of options that a line of code reads, as in ``cfg.optimization.lr`` and ``getattr(args, "lr", …)``."""
    paths = re.findall(r"\b(?:cfg|args|config)((?:\.\w+)+)", source)
    return re.findall(r"\((?:\w+\.)*(?:cfg|args), \"(\w+)\"", source) + [path.rpartition(".")[2] for path in paths]


def _in_libraries(frames: List[Tuple[FrameType, int]]) -> bool:
    """Whether all code from fairseq's command on is fairseq's, ours, or installed."""
    names = [frame.f_globals.get("__spec__") and frame.f_globals["__spec__"].name or "" for frame, _ in frames]
    first = next((i for i, name in enumerate(names) if name.partition(".")[0] == COMMANDS), 0)
    folders = tuple(os.path.join(folder, "") for folder in _library_folders())
    files = (os.path.realpath(frame.f_code.co_filename) for frame, _ in frames[first:])
    return all(file.startswith(folders) or not os.path.exists(file) for file in files)


def _library_folders() -> Iterator[str]:
    import fairseq

    import fb_fairseq

    paths = sysconfig.get_paths()
    yield from (os.path.realpath(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    for package in (fairseq, fb_fairseq):
        yield os.path.realpath(os.path.dirname(package.__file__))
    yield os.path.realpath(os.path.join(os.path.dirname(fairseq.__file__), os.pardir, COMMANDS))


def _message(error: BaseException, frame: FrameType, line: int) -> str:
    """The first line of an error's message with letters in it, or what it asserts."""
    lines = (found.strip(" *") for found in TERMINAL_COLORS.sub("", str(error)).splitlines())
    text = next((found for found in lines if re.search(r"\w", found)), "")
    if not text:
        text = linecache.getline(frame.f_code.co_filename, line).strip()
    text = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    return text if isinstance(error, PLAIN) or type(error) is Exception else f"{type(error).__name__}: {text}"
