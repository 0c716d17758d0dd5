"""Texts in this folder that must not change unnoticed: options, architectures, recipes, agents, figures, the explorer's
page and its pictures, the toy tasks' sequences, and what benchmarks measure. ``tests/test_snapshots.py`` compares.
After a change that is meant, write them again, and read what ``git diff`` shows:

    python -m tests.golden.snapshots [NAME ...]
"""

import argparse
import contextlib
import dataclasses
import functools
import io
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from unittest import mock

from tests.conftest import REPOSITORY

Texts = dict[str, str]  # by name


def options_of(parser: argparse.ArgumentParser, command: str) -> Texts:
    """The options of a command and of its subcommands, without their help."""
    exclusive = {action: group for group in parser._mutually_exclusive_groups for action in group._group_actions}
    about = {"usage": parser.usage, "description": (parser.description or "").partition("\n")[0]}
    lines = [f"{name}: {text}" for name, text in about.items() if text]
    texts: Texts = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            lines += [f"{choice.dest}: {choice.help}" for choice in action._choices_actions]
            for name, subparser in action.choices.items():
                texts.update(options_of(subparser, f"{command} {name}"))
        facts = {
            "value": action.metavar or action.nargs,
            "type": name_of(action.type),
            "choices": list(action.choices) if action.choices is not None else None,
            "default": action.default,
            "required": action.required or (action in exclusive and exclusive[action].required),
        }
        facts = {name: value for name, value in facts.items() if value not in (None, False)}
        kind = type(action).__name__
        lines.append(f"{', '.join(action.option_strings) or action.dest}: {kind} {facts}")
    return {command: "\n".join(lines), **texts}


def name_of(kind: Callable | None) -> str | None:
    """The name of an option's type, with what it is called with."""
    if kind is None:
        return None
    if isinstance(kind, functools.partial):
        return f"{kind.func.__name__} {kind.keywords}"
    return getattr(kind, "__name__", str(kind))


def parser_of(argv: list[str]) -> argparse.ArgumentParser:
    """The parser that prints the help of a command line."""
    from fb_fairseq.commands import main

    found = []
    with mock.patch.object(argparse.ArgumentParser, "print_help", lambda parser, *_: found.append(parser)):
        with mock.patch("torch.cuda.is_available", lambda: False):  # on which the devices to choose from depend
            with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
                main(argv)
    assert found, f"{argv}: prints no help"
    return found[0]


def commands() -> Texts:
    """The options of all commands, and of all recipes."""
    from fb_fairseq.commands import COMMANDS
    from fb_fairseq.papers.steps.recipes import names

    lines = [[name] for name in COMMANDS] + [["recipe", name] for name in names()]
    texts: Texts = {}
    for line in lines:
        texts.update(options_of(parser_of([*line, "--help"]), " ".join(line)))
    return texts


def fairseq_options() -> Texts:
    """The options that this package adds to fairseq's commands, and the values of its architectures."""
    from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
    from fairseq.optim import OPTIMIZER_DATACLASS_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    import fb_fairseq.criterions
    import fb_fairseq.models
    import fb_fairseq.optim
    import fb_fairseq.tasks  # noqa: F401  registers them

    texts: Texts = {}
    tables = {
        "--arch": MODEL_DATACLASS_REGISTRY,
        "--task": TASK_DATACLASS_REGISTRY,
        "--criterion": CRITERION_DATACLASS_REGISTRY,
        "--optimizer": OPTIMIZER_DATACLASS_REGISTRY,
    }
    for option, table in tables.items():
        for name, kind in table.items():
            if kind is not None and kind.__module__.startswith("fb_fairseq"):
                texts[f"{option} {name}"] = "\n".join(own_fields(kind))
    for arch, model in ARCH_MODEL_REGISTRY.items():
        if model.__module__.startswith("fb_fairseq") and arch in ARCH_CONFIG_REGISTRY:
            args = argparse.Namespace()
            ARCH_CONFIG_REGISTRY[arch](args)
            # (Releases of fairseq differ in options that its own architectures leave off.)
            values = sorted((key, value) for key, value in vars(args).items() if value is not False)
            texts[f"values of --arch {arch}"] = "\n".join(f"{key}: {value}" for key, value in values)
    return texts


def own_fields(kind: type) -> list[str]:
    """The fields of a configuration that this package defines, with their defaults and choices."""
    own = {
        name
        for each in kind.__mro__
        if each.__module__.startswith("fb_fairseq")
        for name in each.__dict__.get("__annotations__", {})
    }
    lines = []
    for field in dataclasses.fields(kind):
        if field.name in own:
            metadata = {key: value for key, value in field.metadata.items() if key != "help"}
            facts = {key: list(value) if not isinstance(value, str) else value for key, value in metadata.items()}
            lines.append(f"{field.name}: {field.default!r} {facts}")
    return lines


def figures() -> Texts:
    """How figures look."""
    from tests import drawn_figures

    return drawn_figures.descriptions()


def pictures() -> Texts:
    """The explorer's pictures, an element a line."""
    from tests.commands.explore import shown_readings

    return {name: re.sub("><(?!/)", ">\n<", text) for name, text in shown_readings.pictures().items()}


def page() -> Texts:
    """The parts of the explorer's page."""
    from tests.commands.explore import shown_readings

    return shown_readings.pages()


def sequences() -> Texts:
    """The sizes of each toy task's data, and its first sequences of one seed: with its default options, and with each
    other value of those that have few.
    """
    from fb_fairseq.papers import toy_tasks
    from fb_fairseq.papers.toy_tasks.common.sequences import SeededRandom

    texts: Texts = {}
    for name in toy_tasks.names():
        task = toy_tasks.load(name).TASK
        lines = [f"{task.sequences} {'disjoint' if task.disjoint_splits else 'may be equal'}"]
        changes: list[dict[str, Any]] = [{}]
        for option, each in task.options.items():
            values = each.choices or ([True] if each.default is False else [])
            changes += [{option: value} for value in values if value != each.default]
        for given in changes:
            for number in range(3):
                found = task.generate(SeededRandom("snapshot", name, number), **given)
                lines += [" ".join(found.inputs), " ".join(found.labels)]
        texts[name] = "\n".join(line if len(line) < 500 else f"{line[:500]} … {len(line)}" for line in lines)
    return texts


def agents() -> Texts:
    """The options of each agent and its training in each environment, in the papers' size and in a small one."""
    from fb_fairseq.papers.rl.options import AGENTS
    from fb_fairseq.papers.rl.presets import FULL, preset_options

    texts: Texts = {}
    for environment in FULL:
        for agent in AGENTS:
            for small in (False, True):
                options = [dataclasses.asdict(part) for part in preset_options(environment, agent, small, {})]
                lines = [f"{name}: {value!r}" for part in options for name, value in part.items()]
                texts[f"{environment} {agent} {'small' if small else 'full'}"] = "\n".join(lines)
    return texts


def recipes() -> Texts:
    """A digest of the steps of each recipe, in each of its sizes, and with other options."""
    from tests.papers.steps.printed import CALLS, CHANGED, digest

    return {shlex.join(call): digest(*call) for call in [*CALLS, *map(shlex.split, CHANGED)]}


def benchmarks() -> Texts:
    """What benchmarks measure, in numbers of operations."""
    from tests.papers.benchmark.counted import CALLS, counted

    return {call: counted(call) for call in CALLS}


class Snapshot(NamedTuple):
    """A kind of texts.

    Attributes:
        texts: makes those of today's code.
        needs: the packages for it, besides torch.
    """

    texts: Callable[[], Texts]
    needs: Sequence[str] = ()


SNAPSHOTS = {
    "commands": Snapshot(commands, ["fairseq", "sacrebleu", "gradio"]),
    "fairseq_options": Snapshot(fairseq_options, ["fairseq"]),
    "figures": Snapshot(figures, ["fairseq", "matplotlib"]),
    "pictures": Snapshot(pictures, ["fairseq"]),
    "page": Snapshot(page, ["fairseq", "gradio"]),
    "recipes": Snapshot(recipes, ["fairseq"]),
    "sequences": Snapshot(sequences),
    "agents": Snapshot(agents),
    "benchmarks": Snapshot(benchmarks, ["fairseq"]),
}


@functools.cache
def texts_of(name: str) -> Texts:
    """The texts of a snapshot of today's code."""
    return {title: text.replace(f"{REPOSITORY}/", "") for title, text in SNAPSHOTS[name].texts().items()}


@functools.cache
def written(name: str) -> Texts:
    """The texts of a snapshot as they are in this folder."""
    text = (REPOSITORY / f"tests/golden/{name}.txt").read_text(encoding="utf-8")
    parts = re.split("^=== (.*)\n", text, flags=re.MULTILINE)[1:]
    return {title: part.removesuffix("\n") for title, part in zip(parts[::2], parts[1::2])}


def main(names: Iterable[str]) -> None:
    """Write snapshots; none given: all of them."""
    for name in names or SNAPSHOTS:
        text = "".join(f"=== {title}\n{part}\n" for title, part in texts_of(name).items())
        (REPOSITORY / f"tests/golden/{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
