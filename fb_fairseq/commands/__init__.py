"""What ``python -m fb_fairseq <command>`` runs. Each command's module has a ``main(argv)`` of its own.

Commands are imported only when they run, so that those that need torch alone also run without fairseq.
"""

import difflib
import importlib
import sys
from typing import List, NamedTuple, Optional


class Command(NamedTuple):
    module: str
    help: str


COMMANDS = {
    "preprocess-bytes": Command("fb_fairseq.commands.preprocess_bytes", "binarise text as bytes"),
    "synthetic-tasks": Command("fb_fairseq.synthetic_tasks.command", "write the data of the papers' toy tasks"),
    "evaluate-labels": Command("fb_fairseq.commands.evaluate_labels", "accuracy of a model trained with --labels"),
    "average-checkpoints": Command("fb_fairseq.commands.average_checkpoints", "average the last checkpoints of a run"),
    "import-original": Command(
        "fb_fairseq.commands.import_original.command", "convert checkpoints of the papers' code"
    ),
    "score": Command("fb_fairseq.commands.score", "BLEU and ROUGE of generated text"),
    "plot": Command("fb_fairseq.commands.plot", "learning curves, layer weights, spans, persistent attention"),
    "benchmark": Command("fb_fairseq.benchmark.command", "speed and memory of training and decoding"),
    "rl": Command("fb_fairseq.rl.command", "reinforcement learning: train, evaluate, plot, speed"),
}


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: python -m fb_fairseq <command> [options]",
            "",
            "commands:",
            *lines,
            "",
            "--help after a command explains it.",
        ]
    )


def main(argv: Optional[List[str]] = None) -> Optional[int]:
    """Run a command. Underscores in its name are read as hyphens.

    Returns:
        The exit status: None or 0 on success, 2 if there is no such command. (Commands exit by themselves on bad input.)
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    name = argv[0].replace("_", "-")
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(COMMANDS)}"
        print(f"python -m fb_fairseq: error: unknown command {argv[0]!r}; {hint}", file=sys.stderr)
        return 2
    return importlib.import_module(COMMANDS[name].module).main(argv[1:])
