"""Prints the commands of steps as one types them in a shell."""

import os
import shlex
from collections.abc import Sequence

from fb_fairseq.papers.steps import Step, machine

WIDTH = 120  # of lines, where possible


def show(recipe: str, steps: Sequence[Step], out: str) -> None:
    """Print all steps of a recipe."""
    folders = dict.fromkeys(os.path.dirname(path) for step in steps for path in step.writes)
    programs, *_ = machine.variables()["PATH"].split(os.pathsep)
    print(f"# What the recipe {recipe} runs: {len(steps)} steps")
    print(f"cd {shlex.quote(os.getcwd())}")
    print(f'export PATH={shlex.quote(programs)}:"$PATH" PYTHONPATH={shlex.quote(machine.CLONE)}:"$PYTHONPATH"')
    print(line(["mkdir", "-p", out, *folders]))
    for number, step in enumerate(steps, 1):
        print(f"\n# [{number}/{len(steps)}] {step.does}")
        print(typed(step))


def typed(step: Step) -> str:
    """A step's command, with its input and output."""
    end = [f"<{shlex.quote(step.source)}"] if step.source else []
    if step.output:
        end.append(f">{shlex.quote(step.output)}")
    elif step.log:
        end.append(f"2>&1 | tee -a {shlex.quote(step.log)}")
    return line(machine.resolved(step.words), end)


def line(words: Sequence[str], end: Sequence[str] = ()) -> str:
    """A command in lines that are broken before options and redirections."""
    parts: list[str] = []
    for word in words:
        if not parts or word.startswith("-") or len(parts[-1]) + len(word) > WIDTH - 9:
            parts.append(shlex.quote(word))
        else:
            parts[-1] += f" {shlex.quote(word)}"
    lines = parts[:1]
    for part in [*parts[1:], *end]:
        if len(lines[-1]) + len(part) > WIDTH - 3:
            lines[-1] += " \\"
            lines.append(f"    {part}")
        else:
            lines[-1] += f" {part}"
    return "\n".join(lines)
