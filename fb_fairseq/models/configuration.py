"""Build fairseq's configurations from options that are described elsewhere, and options from configurations."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from fairseq.dataclass.constants import StrEnum

from fb_fairseq.option_fields import option

Described = dict[str, tuple[Any, Any]]  # by name: the type of a field, and the field


def described(source: type, *names: str, **defaults: Any) -> Described:
    """Options as fields of a fairseq configuration, with the help texts and choices of ``source``.

    Args:
        source: an options dataclass, whose fields are made with ``fb_fairseq.option_fields.option``.
        names: which of its fields.
        defaults: further fields, with other defaults than in ``source``.
    """
    own, result = {f.name: f for f in fields(source)}, {}
    for name in [*names, *defaults]:
        choices = own[name].metadata.get("choices")
        kind = own[name].type
        if choices:  # (as ``ChoiceEnum``; former names are aliases, which help does not show)
            kind = StrEnum("Choices", {**{key: key for key in choices}, **own[name].metadata.get("former", {})})
        result[name] = kind, option(defaults.get(name, own[name].default), own[name].metadata["help"])
    return result


def with_options(*groups: Described) -> Callable[[type], type]:
    """Class decorator: make a dataclass that has these fields, and those of its own body."""

    def decorate(cls: type) -> type:
        annotations = {}
        for name, (kind, field) in (item for group in groups for item in group.items()):
            annotations[name] = kind
            setattr(cls, name, field)
        cls.__annotations__ = {**annotations, **cls.__dict__.get("__annotations__", {})}
        return dataclass(cls)

    return decorate


def make_options(kind: type, values: dict[str, Any]):
    """An options dataclass of ``fb_fairseq.modules``; enumerations of fairseq's configurations become plain text."""
    return kind(**{name: str(value) if isinstance(value, Enum) else value for name, value in values.items()})
