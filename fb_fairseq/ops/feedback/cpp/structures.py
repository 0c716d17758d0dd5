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
STRUCT = re.compile(r"^STRUCT\((\w+)\)", re.MULTILINE)
FIELD = re.compile(r"^ *(FIELD|OPTIONAL)\((.+), (\w+)\)", re.MULTILINE)
ACTIVATION = re.compile(r"^ *ACTIVATION\((\w+)\)", re.MULTILINE)


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
        # (A name that there is not goes on to ctypes, which refuses it.)
        super().__init__(**{name: x for name, x in fields.items() if x is not None or name not in self.names})


def structures(text: str) -> dict[str, Any]:
    """The structures of a text as src/arguments.def, by name."""
    made: dict[str, Any] = {}
    _, *parts = STRUCT.split(text)  # the names, each followed by the text of its fields
    for structure, part in zip(parts[::2], parts[1::2]):
        fields = FIELD.findall(part)
        types = {**TYPES, **made}
        members = [(name, POINTER if kind.endswith("*") else types[kind]) for _, kind, name in fields]
        required = [name for word, _, name in fields if word == "FIELD"]
        attributes = dict(__slots__=(), _fields_=members, names=[name for name, _ in members], required=required)
        made[structure] = type(structure, (Arguments,), attributes)
    return made


_DEFINITIONS = (SOURCES / "arguments.def").read_text(encoding="utf-8")
STRUCTURES = structures(_DEFINITIONS)
Matrix = STRUCTURES["Matrix"]
Norm = STRUCTURES["Norm"]
Mask = STRUCTURES["Mask"]
AttentionArgs = STRUCTURES["AttentionArgs"]
LayerArgs = STRUCTURES["LayerArgs"]
SetArgs = STRUCTURES["SetArgs"]
RecordArgs = STRUCTURES["RecordArgs"]
BlockArgs = STRUCTURES["BlockArgs"]
RingArgs = STRUCTURES["RingArgs"]
LayerTransposes = STRUCTURES["LayerTransposes"]
BlockTransposes = STRUCTURES["BlockTransposes"]
TileArgs = STRUCTURES["TileArgs"]
# An activation's number is its place in the text.
ACTIVATION_NUMBERS = {name: number for number, name in enumerate(ACTIVATION.findall(_DEFINITIONS))}
