"""How options are declared: as dataclass fields with a help text."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any


def option(
    default: Any, help: str, choices: Collection[str] | None = None, former: Mapping[str, str] | None = None
) -> Any:
    """A field of a configuration dataclass, which becomes a command-line option.

    Args:
        default: the value if the option is not given.
        help: the text that ``--help`` shows.
        choices: the allowed values, or a table of them, which may grow. Kept in the field's metadata for the code that
            validates the option; None: any value of its type. (fairseq's command line does not look at them: it
            restricts only options whose type is a ``ChoiceEnum``.)
        former: names that values had in earlier versions, and their names of today. Checkpoints may have them."""
    metadata = {"help": help}
    if choices is not None:
        metadata["choices"] = choices if isinstance(choices, Mapping) else tuple(choices)
    if former is not None:
        metadata["former"] = former
    return dataclasses.field(default=default, metadata=metadata)
