"""How options are declared: as dataclass fields with a help text."""

import dataclasses
from typing import Any, Optional, Sequence


def option(default: Any, help: str, choices: Optional[Sequence[str]] = None) -> Any:
    """A field of a configuration dataclass, which becomes a command-line option.

    Args:
        default: the value if the option is not given.
        help: the text that ``--help`` shows.
        choices: the allowed values, kept in the field's metadata for the code that validates the option; None: any
            value of its type. (fairseq's command line does not look at them: it restricts only options whose type is a
            ``ChoiceEnum``.)
    """
    metadata = {"help": help}
    if choices is not None:
        metadata["choices"] = tuple(choices)
    return dataclasses.field(default=default, metadata=metadata)
