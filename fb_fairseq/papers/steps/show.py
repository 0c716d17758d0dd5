"""Prints the commands of steps as one types them in a shell."""

import os
import shlex
from collections.abc import Sequence

from fb_fairseq.papers.steps import Step, environment


def show(recipe: str, steps: Sequence[Step], out: str) -> None:
    """Print all steps of a recipe."""
    folders = dict.fromkeys(os.path.dirname(path) for step in steps for path in step.writes)
    programs, *_ = environment.variables()["PATH"].split(os.pathsep)
    print(f"# What the recipe {recipe} runs: {len(steps)} steps")
    print(f"cd {shlex.quote(os.getcwd())}")
    path = f'{shlex.quote(programs)}:"$PATH"'
    modules = f'{shlex.quote(environment.CLONE)}"${{PYTHONPATH:+:$PYTHONPATH}}"'
    print(f"export PATH={path} PYTHONPATH={modules}")
    print(line(["mkdir", "-p", *dict.fromkeys([out, *folders])]))
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
    return line(environment.resolved(step.words), end)


def line(words: Sequence[str], end: Sequence[str] = ()) -> str:
    """A command, each of its options in a line of its own."""
    broken = [f"\\\n    {shlex.quote(word)}" if word.startswith("--") else shlex.quote(word) for word in words]
    return " ".join([*broken, *end])
