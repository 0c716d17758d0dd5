"""How options are declared: as dataclass fields with a help text."""

from dataclasses import field
from typing import Any, Optional, Sequence


def option(default: Any, help: str, choices: Optional[Sequence[str]] = None):
    """A field of a configuration dataclass.

    Args:
        default: the option's default value.
        help: the text that ``--help`` prints.
        choices: the values that the option may take; None: any of its type.
    """
    metadata = {"help": help}
    if choices is not None:
        metadata["choices"] = tuple(choices)
    return field(default=default, metadata=metadata)
