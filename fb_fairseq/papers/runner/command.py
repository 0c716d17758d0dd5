"""Run an experiment from its data to its figures: preparing, training, evaluating, drawing, and comparing with the
papers.

    python -m fb_fairseq recipe                     # the list
    python -m fb_fairseq recipe char_ptb --help     # the options of one
    python -m fb_fairseq recipe char_ptb --small PTB --print
    python -m fb_fairseq recipe my_recipe.py DATA   # one of your own: docs/recipes.md

Run the same command again to resume. Commands run in the current folder, and write to runs/ in it unless --out names
another folder; --print shows them without running them.
"""

import difflib
import importlib
import os
import runpy
import sys
from typing import Any

from fb_fairseq.command_line import INTERRUPTED_STATUS, CommandParser
from fb_fairseq.errors import STATUS, UserError, debugging, explain, single_line
from fb_fairseq.papers import toy_tasks
from fb_fairseq.papers.runner.processes import RUNNING, Interrupted
from fb_fairseq.papers.runner.shell import CALLER_VARIABLE

EXPERIMENTS = "fb_fairseq.papers.experiments"
# The experiments' modules and their recipes, imported when one runs or the list is shown. The toy tasks come after.
MODULES = {
    "quickstart": "QUICKSTART",
    "char_ptb": "CHAR_PTB",
    "bytes_and_letters": "ENWIK8 TEXT8 PERSISTENT_MEMORY",
    "wikitext103": "WIKITEXT103 WIKITEXT103_ABLATION WIKITEXT103_TRAINING_TIME WIKITEXT103_END_OF_LINE",
    "translation": "IWSLT14_DE_EN WMT14_EN_DE CNN_DM",
    "memory_composition": "MEMORY_COMPOSITION",
    "reinforcement_learning": "CORRIDOR MAZE MAZE_EASY WATER_MAZE",
}
RECIPES = {name.lower(): f"{EXPERIMENTS}.{module}:{name}" for module, text in MODULES.items() for name in text.split()}
OWN = "RECIPE"  # the name of the recipe in a toy task's file, or one's own


def names() -> list[str]:
    """The names of all recipes."""
    return [*RECIPES, *toy_tasks.names()]


def find(name: str):
    """The recipe of this name, or the one in this file."""
    if name.endswith(".py"):
        return from_file(name)
    if name not in names():
        close = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean {close[0]}?" if close else "python -m fb_fairseq recipe lists them"
        raise UserError(f"{name}: unknown recipe; {hint}")
    if name in RECIPES:
        return _named(RECIPES[name])
    recipe = toy_tasks.load(name).RECIPE
    return _named(recipe.kind)(name, recipe)


def _named(name: str) -> Any:
    module, attribute = name.split(":")
    return getattr(importlib.import_module(module), attribute)


def from_file(path: str):
    """The recipe in a file of one's own, whose variable RECIPE it is."""
    if not os.path.isfile(path):
        raise UserError(f"{path}: no such file; give the file of a recipe, or the name of one")
    try:
        variables = runpy.run_path(path)
    except SyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: {error.msg}; correct it") from None
    except Exception as error:
        if debugging():
            raise
        raise UserError(f"{path}: {type(error).__name__}: {error}; FB_FAIRSEQ_DEBUG=1 shows where") from None
    if not hasattr(variables.get(OWN), "main"):
        raise UserError(f"{path}: has no variable {OWN} with a recipe; docs/recipes.md shows one")
    return variables[OWN]


def parser() -> CommandParser:
    """The command line without a recipe; its help lists them."""
    width = max(map(len, names()))
    lines = ["recipes:", *(f"  {name:{width}}  {find(name).summary}" for name in names())]
    return CommandParser("recipe", usage="%(prog)s NAME [DATA] [options]", description=__doc__, epilog="\n".join(lines))


def main(argv: list[str] | None = None) -> int:
    """Run ``python -m fb_fairseq recipe``. Returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0].startswith("-"):
        parser().parse_args(argv)
        parser().print_help()
        return 0
    if CALLER_VARIABLE in os.environ:
        os.chdir(os.environ[CALLER_VARIABLE])
    try:
        with RUNNING.forwarding_signals():
            find(argv[0]).main(argv[1:])
        return 0
    except (KeyboardInterrupt, Interrupted) as error:
        message, status = str(error) or "interrupted; run the same command again to resume", INTERRUPTED_STATUS
    except Exception as error:
        message, status = explain(error), STATUS
        if message is None or debugging():
            raise
    sys.stdout.flush()
    print(f"error: {single_line(message)}", file=sys.stderr)
    return status
