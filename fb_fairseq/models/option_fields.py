"""Options of ``fb_fairseq.modules`` as fields of fairseq's configurations, and back."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from fairseq.dataclass.constants import StrEnum

from fb_fairseq.command_line import option
from fb_fairseq.ops.feedback.loops import OLD_NAMES

Described = dict[str, tuple[Any, Any]]  # by name: the type of a field, and the field


def described(source: type, *names: str, **defaults: Any) -> Described:
    """Options as fields of a fairseq configuration, with the help texts and choices of ``source``.

    Args:
        source: an options dataclass, whose fields are made with ``fb_fairseq.command_line.option``.
        names: which of its fields; none, and no defaults: all.
        defaults: further fields, with other defaults than in ``source``.
    """
    own = {f.name: f for f in fields(source)}
    result = {}
    for name in [*names, *defaults] or own:
        choices = own[name].metadata.get("choices")
        kind = own[name].type
        if choices:  # (as ``ChoiceEnum``; former names are aliases, which help does not show)
            kind = StrEnum("Choices", {**{key: key for key in choices}, **own[name].metadata.get("former", {})})
        result[name] = kind, option(defaults.get(name, own[name].default), own[name].metadata["help"])
    return result


def accept_former_names(parser) -> None:
    """Accept former names of step loops on a command line, which ``--help`` does not show."""
    for action in parser._actions:
        if action.dest == "step_loop":
            action.type = lambda name: OLD_NAMES.get(name, name)


def with_options(*groups: Described) -> Callable[[type], type]:
    """Class decorator: make a dataclass that has these fields, and those of its own body."""

    def decorate(cls: type) -> type:
        annotations = {}
        for group in groups:
            for name, (kind, field) in group.items():
                annotations[name] = kind
                setattr(cls, name, field)
        cls.__annotations__ = {**annotations, **cls.__dict__.get("__annotations__", {})}
        return dataclass(cls)

    return decorate


def make_options(kind: type, cfg: Any, **more: Any) -> Any:
    """An options dataclass of ``fb_fairseq.modules``, from a configuration of fairseq.

    Args:
        kind: the dataclass. Its options that the configuration has not, or as None, keep their defaults.
        cfg: the configuration. Its enumerations become plain text.
        more: further values, which take precedence.
    """
    given = {f.name: getattr(cfg, f.name, None) for f in fields(kind)}
    values = {name: str(value) if isinstance(value, Enum) else value for name, value in given.items()}
    return kind(**{name: value for name, value in {**values, **more}.items() if value is not None})
