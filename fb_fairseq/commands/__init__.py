"""The commands of ``fb-fairseq``.

Each command is a module with a function ``main(argv)``. A command's module is imported only when the command runs, so
that commands which need torch alone also run without fairseq.

    preprocess_bytes.py     binarises text as bytes
    generate.py             continues a text
    evaluate_labels.py      accuracy of a model that was trained with --labels
    label_accuracy.py       that accuracy, also by position
    score.py                BLEU and ROUGE of generated text
    average_checkpoints.py  averages the last checkpoints of a run
    export/                 writes models for transformers; import_transformers.py reads them
    read_model.py           models that commands read, from checkpoints and folders
    texts.py                texts that language models are run on
    imported.py             writes models as checkpoints of fairseq
    plot/                   figures from logs and checkpoints
    explore/                a page in the browser that shows what a model does with a text
    env.py                  versions, devices, threads, and which step loop runs
    fairseq_commands.py     runs fairseq's commands with the plugin loaded

The other commands are in ``papers``. fairseq's commands run with the plugin loaded, from any folder, however the
package is installed: ``fb-fairseq train …`` is ``fairseq-train --user-dir … …``.
"""

import importlib
import sys

import fb_fairseq
from fb_fairseq.commands.fairseq_commands import NAME, run_fairseq
from fb_fairseq.errors import STATUS, choose, fail
from fb_fairseq.printing import OUTPUT_CLOSED_STATUS, forget_output, replace_in_output

SHORT_NAMES = ("train", "validate", "eval-lm", "interactive", "preprocess", "hydra-train")  # of fairseq-train, …
FAIRSEQ_COMMANDS = (*SHORT_NAMES, "fairseq-generate")  # generate is ours

COMMANDS = {  # each with its module in this package, whose ``main(argv)`` runs it, and one line for the list
    "quickstart": ("papers.steps.start", "train on real text, evaluate, generate and draw, in minutes"),
    "preprocess-bytes": ("commands.preprocess_bytes", "binarise text as bytes"),
    "synthetic-tasks": ("papers.toy_tasks.common.command", "generate the data of toy tasks"),
    "state-tracking": ("papers.state_tracking.command", "track a state beside the recurrent models of today"),
    "generate": ("commands.generate", "continue a text, printed as it is generated"),
    "evaluate-labels": ("commands.evaluate_labels", "accuracy of a model trained with --labels"),
    "average-checkpoints": ("commands.average_checkpoints", "average the last checkpoints of a run"),
    "import-original": ("papers.import_original.command", "convert checkpoints of the papers' original code"),
    "export": ("commands.export.command", "write a model for Hugging Face transformers"),
    "import-transformers": ("commands.import_transformers", "convert a model of transformers to a fairseq checkpoint"),
    "score": ("commands.score", "BLEU and ROUGE of generated text"),
    "compare": ("papers.compare", "results of recipes beside the papers' tables"),
    "plot": ("commands.plot.command", "learning curves, what models have learned, and what they attend to"),
    "explore": ("commands.explore.command", "look into a model in the browser"),
    "benchmark": ("papers.benchmark.command", "speed and memory of training and decoding"),
    "recipe": ("papers.steps.command", "run an experiment from its data to its figures"),
    "env": ("commands.env", "versions, devices, threads, and which step loop runs here and why"),
    "rl": ("papers.rl.command", "reinforcement learning: train, evaluate, plot"),
}


def usage() -> str:
    """The list of commands, as ``--help`` prints it."""
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "usage: fb-fairseq <command> [options]",
            "",
            "commands:",
            *(f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items()),
            "",
            "fairseq's commands with this plugin loaded, without --user-dir:",
            f"  {', '.join(FAIRSEQ_COMMANDS)}",
            "",
            "fb-fairseq <command> --help lists the options of a command; fb-fairseq --version tells the version.",
        ]
    )


def main(argv: list[str] | None = None) -> int | None:
    """Run a command. Underscores in its name are read as hyphens.

    Args:
        argv: the command and its options; the program's own arguments by default.

    Returns:
        The exit status: None or 0 on success; 2 if no command or an unknown one is given, a package is missing that
        the command needs, or the output cannot be written; 141 if nobody reads it any more, as behind ``| head``.

    Raises:
        SystemExit: from the command itself, on ``--help`` and on bad input.
        Exception: from one of fairseq's commands; ``sys.excepthook`` tells it in one line.
    """
    if argv is None:
        argv = sys.argv[1:]
        replace_in_output()
    name = argv[0].replace("_", "-") if argv else ""
    short = name.removeprefix("fairseq-")
    if name in FAIRSEQ_COMMANDS or short in SHORT_NAMES:
        return run_fairseq(short, argv[1:])
    try:
        try:
            return run(name, argv[1:])
        finally:
            sys.stdout.flush()  # rather than when Python ends, where errors cannot be caught
    except BrokenPipeError:
        forget_output()
        return OUTPUT_CLOSED_STATUS
    except OSError as error:
        forget_output()  # which Python would try to write again
        return fail(name or "--help", error)
    except ImportError as error:
        return fail(name, error)


def run(name: str, argv: list[str]) -> int | None:
    """Run a command of this package.

    Args:
        name: of the command; empty: none is given.
        argv: its options.

    Returns:
        See ``main``.
    """
    if name in ("", "-h", "--help"):
        print(usage())
        return 0 if name else STATUS
    if name == "--version":
        print(f"{NAME} {fb_fairseq.__version__}")
        return 0
    if name not in COMMANDS:
        hint = choose(name, (*COMMANDS, *FAIRSEQ_COMMANDS))
        print(f"fb-fairseq: error: unknown command {name!r}; {hint}", file=sys.stderr)
        return STATUS
    return importlib.import_module(f"{NAME}.{COMMANDS[name][0]}").main(argv)
