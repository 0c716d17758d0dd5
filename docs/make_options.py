"""Write docs/options.md, the options of this package's task, models, criterion and optimizer; and the table of step
loops in docs/choosing-options.md:

    python docs/make_options.py
"""

import argparse
import pathlib
from collections.abc import Collection
from typing import Any, NamedTuple

from fb_fairseq import patches  # noqa: F401  before fairseq is used

# isort: split
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
)
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY

import fb_fairseq.models  # noqa: F401
import fb_fairseq.tasks  # noqa: F401
from fb_fairseq.ops.feedback.loops import CHOICES

PAGE = pathlib.Path(__file__).with_name("options.md")
HEAD = """# Options

Written by `python docs/make_options.py`; do not edit. The same texts, with fairseq's own options, are printed by

```bash
fairseq-train --help --user-dir fb_fairseq --task streaming_lm --arch feedback_transformer_lm --criterion lm_loss
```

[Architectures](architectures.md) has the options of named ones, such as `feedback_transformer_lm_enwik8`.
"""
SILENT_DEFAULTS = ("None", "False", "", argparse.SUPPRESS)  # options that are off unless they are given
# Which option chooses each part of a run, and its name.
PARTS = [
    ("task", "streaming_lm"),
    ("arch", "feedback_transformer_lm"),
    ("arch", "relative_transformer_lm"),
    ("arch", "all_attention_lm"),
    ("arch", "streaming_lstm_lm"),
    ("arch", "feedback_decoder"),
    ("criterion", "lm_loss"),
    ("optimizer", "clipped_adagrad"),
]
CHOOSING = PAGE.with_name("choosing-options.md")
BEGIN, END = "<!-- step loops, written by docs/make_options.py -->\n", "<!-- end -->\n"


class Component(NamedTuple):
    """A part of a run that brings options of its own.

    Attributes:
        option: the option that chooses it, as ``--task``.
        name: its name there, as ``streaming_lm``.
        summary: the first sentence about it.
        actions: its options, as argparse knows them.
        defaults: their defaults, by name.
    """

    option: str
    name: str
    summary: str
    actions: list[argparse.Action]
    defaults: dict[str, Any]


def component(option: str, name: str) -> Component:
    """A part and its options. ``option``: which one chooses it, without dashes; ``name``: its name there."""
    kind = registered(option, name)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    if hasattr(kind, "add_args"):
        kind.add_args(parser)
    else:
        gen_parser_from_dataclass(parser, getattr(kind, "__dataclass")())
    defaults = {action.dest: action.default for action in parser._actions}
    if option == "arch":
        defaults.update(architecture_defaults(name))
    summary = " ".join((kind.__doc__ or "").strip().partition("\n\n")[0].replace("``", "").split())
    return Component(f"--{option}", name, summary, parser._actions, defaults)


def registered(option: str, name: str) -> type:
    """The class that fairseq finds under a name of an option; see ``component``."""
    if option == "task":
        return TASK_REGISTRY[name]
    if option == "arch":
        return ARCH_MODEL_REGISTRY[name]
    return REGISTRIES[option]["registry"][name]


def architecture_defaults(name: str) -> dict[str, Any]:
    """The defaults of an architecture: those of its model's dataclass, and what the architecture changes in them."""
    defaults: dict[str, Any] = {}
    dataclass = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(name))
    if dataclass is not None:
        defaults.update(vars(dataclass()))
    if name in ARCH_CONFIG_REGISTRY:
        changed = argparse.Namespace()
        ARCH_CONFIG_REGISTRY[name](changed)
        defaults.update(vars(changed))
    return defaults


def text_of(action: argparse.Action, defaults: dict[str, Any]) -> str:
    """An option's help text with its default."""
    text = action.help or ""
    default = defaults.get(action.dest, action.default)
    default = str(getattr(default, "value", default))  # an enumeration's
    is_off = default in SILENT_DEFAULTS
    is_of_another_option = default.startswith("${")
    if is_off or is_of_another_option or "efault" in text:
        return text
    return f"{text} (default: {default})".strip()


def step_loops() -> str:
    """The table of the step loops."""
    rows = [f"| `{name}` | {summary} | {runs} |" for name, (summary, runs) in CHOICES.items()]
    return "\n".join(["| `--step-loop` | what it is | runs |", "|---|---|---|", *rows]) + "\n"


def with_step_loops(text: str) -> str:
    """The page on choosing options, with the table as it is now."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{CHOOSING} lacks the line {BEGIN!r} or {END!r}, between which the table stands"
    return before + BEGIN + step_loops() + END + after


def section(part: Component, before: Collection[str]) -> tuple[str, list[str]]:
    """A heading, a table of the options that no section before has, and the names of the others.

    Args:
        part: the part.
        before: the rows of the sections before.

    Returns:
        The section's text, and the rows of its table.
    """
    rows = []
    known = []
    for action in part.actions:
        if action.help == argparse.SUPPRESS:
            continue
        flags = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.dest}`"
        text = text_of(action, part.defaults).replace("%%", "%").replace("|", "\\|")
        if action.choices is not None:
            text += f"; one of {', '.join(f'`{choice}`' for choice in action.choices)}"
        row = f"| {flags} | {text} |"
        if row in before:
            known.append(flags)
        else:
            rows.append(row)
    more = f"\nAs above: {', '.join(known)}.\n" if known else ""
    table = "\n".join(["| option | |", "|---|---|", *rows]) + "\n" if rows else ""
    return f"## `{part.option} {part.name}`\n\n{part.summary}\n\n{table}{more}", rows


def page() -> str:
    """The whole page."""
    rows: list[str] = []
    sections = [HEAD]
    for option, name in PARTS:
        part = component(option, name)
        if part.actions:
            text, more = section(part, rows)
            sections.append(text)
            rows += more
    return "\n".join(sections)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    CHOOSING.write_text(with_step_loops(CHOOSING.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"Wrote {PAGE} and the step loops in {CHOOSING}")
