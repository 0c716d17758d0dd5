"""Run an experiment from its data to its figures: preparing, training, evaluating, drawing, and comparing with the
papers.

    fb-fairseq recipe                     # the list
    fb-fairseq recipe char_ptb --help     # the options of one
    fb-fairseq recipe char_ptb --small PTB --print
    fb-fairseq recipe my_recipe.py DATA   # one of your own: docs/recipes.md

Run the same command again to resume. Commands run in the current folder, and write to runs/ in it unless --out names
another folder; --print shows them without running them. Small settings (--small; of toy tasks and agents the default)
take minutes to an hour for each model on a CPU; the papers' settings (--full) are for GPUs.
"""

import argparse
import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from fb_fairseq.command_line import CommandParser, whole_number
from fb_fairseq.errors import UserError, flag
from fb_fairseq.packages import without_fairseq
from fb_fairseq.papers.steps import Call, Recipe, engine, environment, machine
from fb_fairseq.papers.steps.options import SHORTER
from fb_fairseq.papers.steps.recipes import find, names
from fb_fairseq.papers.steps.show import show

PLACEHOLDER = "DATA"  # stands for the data in what is printed
INTERPRETED = (":", ",", "${")  # by fairseq, in paths


def listing() -> CommandParser:
    """The command line without a recipe; its help lists them."""
    width = max(map(len, names()))
    lines = ["recipes, and the DATA that they need:"]
    for name in names():
        recipe = find(name)
        lines.append(f"  {name:{width}}  {recipe.summary}")
        lines += [f"  {'':{width}}    DATA: {recipe.data}"] if recipe.data else []
    return CommandParser("recipe", usage="%(prog)s NAME [DATA] [options]", description=__doc__, epilog="\n".join(lines))


def parser_of(command: str, recipe: Recipe) -> CommandParser:
    """The parser of a recipe's command line."""
    usage = f"%(prog)s {'[DATA] ' if recipe.data else ''}[options]{' [-- OPTIONS]' if recipe.extra else ''}"
    after = f"DATA: {recipe.data}\n" if recipe.data else ""
    after += f"Options after -- go to {recipe.extra}." if recipe.extra else ""
    parser = CommandParser(command, usage=usage, description=recipe.summary, epilog=after, allow_abbrev=False)
    parser.set_defaults(small=recipe.sizes != "full", data="")
    if recipe.data:
        parser.add_argument("data", nargs="?", default="", help=argparse.SUPPRESS)
    if recipe.sizes != "one":  # (if both are given, the last one counts)
        default = " (the default)" if recipe.sizes == "small" else ""
        parser.add_argument("--small", action="store_true", help=f"small models, for a CPU{default}")
        parser.add_argument("--full", dest="small", action="store_false", help="the papers' setting")
    parser.add_argument("--out", metavar="DIR", help="output folder (default: runs/NAME, or runs/NAME-small)")
    parser.add_argument("--print", action="store_true", help="print the commands without running them")
    parser.add_argument("--jobs", type=whole_number, default=1, metavar="N", help="steps at a time (default: 1)")
    if recipe.extra == "fairseq-train":
        text = "words before each training, such as those of torchrun or srun: docs/distributed.md"
        parser.add_argument("--launch", type=shlex.split, default=[], metavar="WORDS", help=text)
        text = "processes of each training, over which an update is divided (default: one for each GPU here)"
        parser.add_argument("--processes", type=whole_number, metavar="N", help=text)
    for name, (kind, text) in recipe.options.items():
        spellings = [flag(name), SHORTER.get(name, flag(name))]
        value = {"type": kind} if kind else {"action": "store_true", "default": None}
        parser.add_argument(*dict.fromkeys(spellings), dest=name, help=text, **value)
    return parser


def call_of(name: str, recipe: Recipe, args: argparse.Namespace, extra: Sequence[str]) -> Call:
    """The call that a command line asks for. ``extra``: its words after ``--``."""
    caller = os.environ.get(environment.CALLER, "")
    options = {each: getattr(args, each) for each in recipe.options if getattr(args, each) is not None}
    if "text" in options:
        options["text"] = os.path.join(caller, options["text"])
    parts = [Path(name).stem, options.get(recipe.variant), "small" if args.small and recipe.sizes != "one" else None]
    stem = "-".join(str(part) for part in parts if part)
    out = os.path.join(caller, args.out) if args.out else os.path.join("runs", stem)
    for part in INTERPRETED:
        if part in out:
            raise UserError(f"--out {out}: fairseq interprets {part} in paths; choose a folder without it")
    out = os.path.normpath(out)
    if os.sep not in out:  # a bare name, such as 2, may be the value of an option, too
        out = f"./{out}"
    gpus = machine.gpus()
    processes = getattr(args, "processes", 1) or max(gpus, 1)  # (only fairseq-train divides updates)
    if args.jobs > 1 and processes > 1:
        raise UserError(f"--jobs {args.jobs}: each training uses all GPUs; leave it out")
    return Call(
        name=Path(name).stem,
        out=out,
        data=os.path.join(caller, args.data) if args.data else "",
        small=args.small,
        options=options,
        extra=extra,
        launch=getattr(args, "launch", []),
        processes=processes,
        cpu=() if gpus else ("--cpu",),
    )


def main(argv: list[str] | None = None, command: str = "") -> None:
    """Run ``fb-fairseq recipe``, or another command that is a recipe."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0].startswith("-"):
        parser = listing()
        parser.parse_args(argv)
        parser.print_help()
        return
    name, *words = argv
    split = words.index("--") if "--" in words else len(words)
    with CommandParser("recipe").one_line_errors():
        recipe = find(os.path.join(os.environ.get(environment.CALLER, ""), name) if name.endswith(".py") else name)
    parser = parser_of(command or f"recipe {name}", recipe)
    args, others = parser.parse_known_intermixed_args(words[:split])
    with parser.one_line_errors():
        if others:
            raise UserError(f"{others[0]}: unknown option, or more than the recipe takes; --help lists the options")
        if words[split + 1 :] and not recipe.extra:
            raise UserError("--: this recipe takes no further options")
        if recipe.data and args.print:
            args.data = args.data or PLACEHOLDER
        call = call_of(name, recipe, args, words[split + 1 :])
        steps = list(recipe.steps(call))
        if args.print:
            show(call.name, steps, call.out)
        else:
            needs_fairseq = any(str(step.words[0]).startswith("fairseq-") for step in steps)
            if needs_fairseq and importlib.util.find_spec("fairseq") is None:  # before anything is prepared for it
                raise UserError(without_fairseq())
            engine.run(
                call.name,
                steps,
                call.out,
                jobs=args.jobs,
                processes=call.processes,
                told=recipe.told,
            )
