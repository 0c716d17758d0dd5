"""ctypes structures for the arguments of the C++ functions. These and C++'s own are generated from src/arguments.def,
so that no field is listed twice.
"""

import ctypes
import re
from collections.abc import Sequence
from typing import Any

from fb_fairseq.ops.feedback.cpp.library import NUMBER, POINTER, SOURCES

# A pointer that is set before each call. (None, a null pointer, is for optional fields only.)
LATER = 0

TYPES: dict[str, Any] = {"int64_t": NUMBER, "Activation": NUMBER, "float": ctypes.c_float, "KeysValues": POINTER * 2}
LINE = re.compile(r"^ *(ACTIVATION|STRUCT|FIELD|OPTIONAL)\((?:(.+), )?(\w+)\)", re.MULTILINE)


class Arguments(ctypes.Structure):
    """A structure that is made with its fields by name. Optional ones may be None.

    Attributes:
        names: all fields.
        required: those that are not optional.

    Raises:
        TypeError: a required field is not given, or None.
        AttributeError: there is no such field.
    """

    __slots__ = ()  # without it Python would add any attribute that is set
    names: Sequence[str]
    required: Sequence[str]

    def __init__(self, **fields: Any):
        missing = [name for name in self.required if fields.get(name) is None]
        if missing:
            raise TypeError(f"{type(self).__name__} needs {', '.join(missing)}")
        super().__init__(**{name: value for name, value in fields.items() if value is not None})


def structures(text: str) -> dict[str, Any]:
    """The structures of a text as src/arguments.def, by name."""
    types, rows = dict(TYPES), {}
    for word, kind, name in LINE.findall(text):
        if word == "STRUCT":
            last = rows[name] = []
        elif word != "ACTIVATION":
            last.append((word, kind, name))
    for structure, fields in rows.items():
        members = [(name, POINTER if kind.endswith("*") else types[kind]) for _, kind, name in fields]
        required = [name for word, _, name in fields if word == "FIELD"]
        attributes = dict(__slots__=(), _fields_=members, names=[name for name, _ in members], required=required)
        types[structure] = type(structure, (Arguments,), attributes)
    return {name: types[name] for name in rows}


def activations(text: str) -> list[str]:
    """The names of the activations in such a text; an activation's number is its place."""
    return [name for word, _, name in LINE.findall(text) if word == "ACTIVATION"]


_DEFINITIONS = (SOURCES / "arguments.def").read_text(encoding="utf-8")
STRUCTURES = structures(_DEFINITIONS)
globals().update(STRUCTURES)  # each by its name, such as BlockArgs
ACTIVATION_NUMBERS = {name: number for number, name in enumerate(activations(_DEFINITIONS))}
