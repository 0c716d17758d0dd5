"""Options as words of a command line."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from fb_fairseq.errors import flag


def words(options: Mapping[str, Any]) -> list[str]:
    """Options, by their names with underscores, as words of a command line. ``True`` stands for an option without a
    value; options that are ``False`` or None are left out.
    """
    line: list[str] = []
    for name, value in options.items():
        if value is True:
            line.append(flag(name))
        elif value is not False and value is not None:
            line += [flag(name), number(value) if isinstance(value, float) else str(value)]
    return line


def number(value: float) -> str:
    """A decimal number, rounded to six significant digits and without an exponent: 0.00015."""
    return f"{Decimal(repr(float(f'{value:.6g}'))):f}"


def resolved(options: Mapping[str, Any], updates: int) -> dict[str, Any]:
    """The options of a setting, with values that are functions of the number of updates as numbers."""
    return {name: value(updates) if callable(value) else value for name, value in options.items()}
