"""Write docs/options.md: the options of this package's task, models, criterion and optimizer.

    python docs/make_options.py

They come from the same place as the help of fairseq's commands, ``fb_fairseq.patches.help_text``.
"""

import argparse
import pathlib

from fb_fairseq import patches  # noqa: F401  before fairseq is used

# isort: split
import fb_fairseq.models  # noqa: F401
import fb_fairseq.tasks  # noqa: F401
from fb_fairseq.ops.feedback.loops import CHOICES
from fb_fairseq.patches.help_text import Component, components, text_of

PAGE = pathlib.Path(__file__).with_name("options.md")
HEAD = """# Options

Written by `python docs/make_options.py`; do not edit. The same texts, with fairseq's own options, are printed by

```bash
fairseq-train --help --user-dir fb_fairseq --task streaming_lm --arch feedback_transformer_lm --criterion lm_loss
```

The defaults of named architectures, such as `feedback_transformer_lm_enwik8`, are printed with `--arch` and their name.
"""
PARTS = [
    {"task": "streaming_lm"},
    {"arch": "feedback_transformer_lm"},
    {"arch": "relative_transformer_lm"},
    {"arch": "all_attention_lm"},
    {"arch": "streaming_lstm_lm"},
    {"arch": "feedback_decoder"},
    {"criterion": "lm_loss"},
    {"optimizer": "clipped_adagrad"},
]


CHOOSING = PAGE.with_name("choosing-options.md")
BEGIN, END = "<!-- step loops, written by docs/make_options.py -->\n", "<!-- end -->\n"


def step_loops() -> str:
    """The table of the step loops."""
    rows = [f"| `{name}` | {choice.summary} | {choice.runs} |" for name, choice in CHOICES.items()]
    return "\n".join(["| `--step-loop` | what it is | runs |", "|---|---|---|", *rows]) + "\n"


def with_step_loops(text: str) -> str:
    """The page on choosing options, with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + step_loops() + END + rest.partition(END)[2]


def section(part: Component, seen: set) -> str:
    """A heading and a table of the options that no section before has."""
    rows, known = [], []
    for action in part.actions:
        if action.help == argparse.SUPPRESS:
            continue
        flags = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.dest}`"
        text = text_of(action, part.defaults).replace("%%", "%").replace("|", "\\|")
        if action.choices is not None:
            text += f"; one of {', '.join(f'`{choice}`' for choice in action.choices)}"
        row = f"| {flags} | {text} |"
        (known if row in seen else rows).append(row if row not in seen else flags)
        seen.add(row)
    more = f"\nAs above: {', '.join(known)}.\n" if known else ""
    table = "\n".join(["| option | |", "|---|---|", *rows]) + "\n" if rows else ""
    return f"## `{part.option} {part.name}`\n\n{part.summary}\n\n{table}{more}"


def page() -> str:
    """The whole page."""
    seen: set = set()
    return "\n".join([HEAD, *(section(part, seen) for chosen in PARTS for part in components(chosen))])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    CHOOSING.write_text(with_step_loops(CHOOSING.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"Wrote {PAGE} and the step loops in {CHOOSING}")
