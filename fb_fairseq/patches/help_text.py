"""``--help`` of fairseq's commands, with the options of the task, architecture, … named on the command line."""

import argparse
import sys
from typing import Any, Dict, List, NamedTuple, Optional

HELP = ("-h", "--help")
SILENT_DEFAULTS = ("None", "False", "", argparse.SUPPRESS)  # options that are off unless they are given
PLUGIN = "fb_fairseq"
INTERNAL = ("resolved_architecture",)  # set by architectures, not by users


class Component(NamedTuple):
    """A part of a run that brings options of its own.

    Attributes:
        option: the option that chooses it, as ``--task``.
        name: the chosen one, as ``streaming_lm``.
        summary: the first sentence about it.
        actions: its options, as argparse knows them.
        defaults: their defaults, by name, where these are not the actions' own.
    """

    option: str
    name: str
    summary: str
    actions: List[argparse.Action]
    defaults: Dict[str, Any]


class Stop(Exception):
    """Parsing ended in an error."""


def show_help(original, parser: argparse.ArgumentParser, words: List[str], **kwargs) -> None:
    """Print the help of a command and exit.

    fairseq prints its help before it has read which task, architecture, … are asked for, and so without their options.

    Args:
        original: fairseq's ``parse_args_and_arch``.
        words: the command line.
    """
    rest = [word for word in words if word not in HELP]
    report, parser.error = parser.error, _stop
    try:
        args, _ = parser.parse_known_args(rest)
    except Stop as stop:
        report(str(stop))
    try:
        original(parser, rest, **kwargs)  # adds the options of the task, …
    except Stop as stop:
        if "required" not in str(stop):
            report(str(stop))
    except RuntimeError as error:  # without --arch
        if str(error):
            raise
    regroup(parser, components(vars(args)))
    parser.print_help()
    sys.exit(0)


def _stop(message: str) -> None:
    raise Stop(message)


def components(chosen: Dict[str, Any]) -> List[Component]:
    """The task, architecture, criterion, … that are chosen, by option name."""
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    found = []
    task = TASK_REGISTRY.get(chosen.get("task"))
    if task is not None:
        found.append(component("task", chosen["task"], task))
    arch = chosen.get("arch")
    if arch in ARCH_MODEL_REGISTRY:
        values = argparse.Namespace()
        ARCH_CONFIG_REGISTRY.get(arch, lambda args: None)(values)
        found.append(component("arch", arch, ARCH_MODEL_REGISTRY[arch], vars(values)))
    for registry, entry in REGISTRIES.items():
        kind = entry["registry"].get(chosen.get(registry))
        if kind is not None:
            found.append(component(registry, chosen[registry], kind))
    return [part for part in found if part.actions]


def component(option: str, name: str, kind: type, defaults: Optional[Dict[str, Any]] = None) -> Component:
    """The options of a task, a model, …

    Args:
        kind: its class.
        defaults: see ``Component``.
    """
    from fairseq.dataclass.utils import gen_parser_from_dataclass
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    if hasattr(kind, "add_args"):
        kind.add_args(parser)
    elif getattr(kind, "__dataclass", None) is not None:
        gen_parser_from_dataclass(parser, getattr(kind, "__dataclass")())
    values = {action.dest: action.default for action in parser._actions}
    if option == "arch":
        dataclass = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(name))
        values.update(vars(dataclass()) if dataclass is not None else {})
    values.update(defaults or {})
    summary = " ".join((kind.__doc__ or "").strip().partition("\n\n")[0].replace("``", "").split())
    actions = [action for action in parser._actions if action.dest not in INTERNAL]
    return Component(f"--{option.replace('_', '-')}", name, summary, actions, values)


def text_of(action: argparse.Action, defaults: Dict[str, Any]) -> str:
    """An option's help text with its default."""
    if action.help == argparse.SUPPRESS:
        return action.help
    text, default = action.help or "", defaults.get(action.dest, action.default)
    default = getattr(default, "value", default)  # an enumeration's
    if str(default) in SILENT_DEFAULTS or "efault" in text:
        return text
    if isinstance(default, str) and default.startswith("${"):  # that of another option
        return text
    shown = str(default).replace("%", "%%")  # argparse formats help texts
    return f"{text} (default: {shown})".strip()


def regroup(parser: argparse.ArgumentParser, parts: List[Component]) -> None:
    """Put the options of the chosen parts first, each under its own heading, and say what can be chosen."""
    parser.usage = f"{parser.prog} DATA --user-dir {PLUGIN} [options]"
    own = {}
    for part in parts:
        group = parser.add_argument_group(f"{part.option} {part.name}", part.summary)
        own.update({action.dest: (group, part) for action in part.actions})
    groups = parser._action_groups
    for group in groups:
        for action in list(group._group_actions):
            if action.dest in own and group is not own[action.dest][0]:
                group._group_actions.remove(action)
                new, part = own[action.dest]
                if action not in new._group_actions:
                    action.help = text_of(action, part.defaults) if action.help else None
                    new._group_actions.append(action)
            elif action.dest not in own:
                action.help = text_of(action, {}) if action.help else None
    new_groups = [group for group in groups if any(group is entry[0] for entry in own.values())]
    groups[:] = [*new_groups, *(group for group in groups if group not in new_groups)]
    for action in parser._actions:
        if action.dest in INTERNAL:
            action.help = argparse.SUPPRESS
        if action.choices is not None and len(list(action.choices)) > 20:
            plugins = [name for name in action.choices if _is_ours(action.dest, name)]
            shown = ", ".join(plugins) or "see fairseq's documentation"
            action.help = f"one of {len(list(action.choices))}; this plugin's: {shown}" if plugins else f"{shown}"
            action.metavar = action.dest.upper()


def _is_ours(option: str, name: str) -> bool:
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    registries = {"arch": ARCH_MODEL_REGISTRY, "task": TASK_REGISTRY}
    registry = registries.get(option) or REGISTRIES.get(option, {}).get("registry", {})
    return getattr(registry.get(name), "__module__", "").startswith(f"{PLUGIN}.")
