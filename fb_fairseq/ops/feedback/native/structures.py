"""The structures of a native call's arguments, by ctypes, and the comparison with those of src/arguments.def, which
says what each field is and has the shapes of the tensors."""

import ctypes
from itertools import zip_longest
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fb_fairseq.ops.feedback.native.build import BuildError
from fb_fairseq.ops.layers import ACTIVATIONS

# A pointer that is set before each call. (None, a null pointer, is for optional fields only.)
LATER = 0

STRUCTURES: List[Any] = []


class Arguments(ctypes.Structure):
    """A structure of arguments.

    A new one must be given all its fields, so that none is null by mistake: None only where it is optional. Fields that
    it does not have cannot be set.
    """

    __slots__ = ()  # without it Python would add any attribute that is set
    names: Sequence[str]
    optional: Sequence[str]
    count: int

    def __init__(self, **fields: Any):
        # (A block makes dozens, so the usual case must be fast.)
        if len(fields) != self.count or None in fields.values():
            self._check(fields)
        initialise(self, **fields)  # rejects names that it does not know

    def _check(self, fields: Dict[str, Any]) -> None:
        """Raise if a field is not given, or is None but not optional; else remove those that are None."""
        missing = [name for name in self.names if name not in fields] if len(fields) < self.count else []
        for name in [name for name, value in fields.items() if value is None]:
            if name in self.optional:
                del fields[name]
            else:
                missing.append(name)
        if missing:
            raise TypeError(f"{type(self).__name__} needs {', '.join(missing)}")


initialise = ctypes.Structure.__init__


def structure(name: str, *members: Tuple[str, Any], optional: str = "") -> Any:
    """A new subclass of ``Arguments``.

    Args:
        members: names, separated by spaces, and their type.
        optional: names of the fields that may be None.
    """
    fields = [(member, kind) for names, kind in members for member in names.split()]
    attributes: Dict[str, Any] = {"__slots__": (), "_fields_": fields, "optional": optional.split()}
    attributes.update(names=[member for member, _ in fields], count=len(fields))
    made = type(name, (Arguments,), attributes)
    STRUCTURES.append(made)
    return made


def pointer_to(kind: str) -> Any:
    """A type of pointers."""
    return type(f"{kind}*", (ctypes.c_void_p,), {"__slots__": ()})


NUMBER, REAL = ctypes.c_int64, ctypes.c_float
FLOATS, BYTES, INTS, LONGS = (pointer_to(kind) for kind in ("float32", "uint8", "int32", "int64"))
KeysValues = FLOATS * 2

Matrix = structure("Matrix", ("panels bias", FLOATS), optional="bias")
Norm = structure("Norm", ("weight bias", FLOATS))
Mask = structure("Mask", ("keep", BYTES), ("scale", REAL), optional="keep")
AttentionArgs = structure("AttentionArgs", ("query out", Matrix), ("norm", Norm))
LayerArgs = structure(
    "LayerArgs",
    ("memory cross", AttentionArgs),
    ("fc1 fc2", Matrix),
    ("ffn_norm", Norm),
    ("log_mask", FLOATS),
    ("outside", BYTES),
    ("encoder", KeysValues),
    ("reach active set", NUMBER),
    optional="cross log_mask outside encoder",
)
SetArgs = structure(
    "SetArgs", ("project", Matrix), ("norm", Norm), ("slots", KeysValues), ("memory", NUMBER), optional="norm"
)
RecordArgs = structure(
    "RecordArgs",
    ("steps", NUMBER),
    ("x attended_x q a p hidden attention_sum ffn_sum", FLOATS),
    ("crossed_x cross_q cross_a cross_p cross_sum", FLOATS),
    optional="attention_sum ffn_sum crossed_x cross_q cross_a cross_p cross_sum",
)
BlockArgs = structure(
    "BlockArgs",
    ("T B D L H E F K C S I", NUMBER),
    ("sources rows_per_source mask_slots pre_norm activation alignment_layer alignment_heads", NUMBER),
    ("scale eps", REAL),
    ("layers", pointer_to("LayerArgs")),
    ("sets", pointer_to("SetArgs")),
    ("mix key_positions value_positions", FLOATS),
    ("reach", LONGS),
    ("padding", BYTES),
    ("attention_mask hidden_mask attention_residual_mask ffn_residual_mask cross_mask cross_residual_mask", Mask),
    ("record", RecordArgs),
    ("x first_query memory out aligned scratch", FLOATS),
    optional="key_positions value_positions reach padding first_query out aligned",
)
RingArgs = structure(
    "RingArgs", ("slots span position", NUMBER), ("origin", INTS), ("age", LONGS), optional="origin age"
)
LayerTransposes = structure(
    "LayerTransposes", ("query out cross_query cross_out fc1 fc2", FLOATS), optional="cross_query cross_out"
)
BlockTransposes = structure(
    "BlockTransposes",
    ("layers", pointer_to("LayerTransposes")),
    ("projects", pointer_to("float32*")),
    ("key_positions value_positions", FLOATS),
    optional="key_positions value_positions",
)
TileArgs = structure(
    "TileArgs",
    ("first steps at room W", NUMBER),
    ("transposes", pointer_to("BlockTransposes")),
    ("d_out d_x d_slots", FLOATS),
    ("dq da d_attention d_ffn d_hidden d_attn_norm d_ffn_norm d_kv d_kv_normed d_memory ds p_slots", FLOATS),
    ("dcq dca dcs d_crossed d_cross_norm", FLOATS),
    optional="dcq dca dcs d_crossed d_cross_norm",
)


def check_layout(text: str) -> None:
    """Compare the structures and activations with those of the compiled library.

    Args:
        text: that of ``layout_text`` in src/arguments.h.

    Raises:
        BuildError: they differ; it names the first difference.
    """
    theirs: Dict[str, List[str]] = {}
    for section in text.split("= ")[1:]:
        name, *rows = section.splitlines()
        theirs[name] = rows
    ours = {"Activation": list(ACTIVATIONS), **{made.__name__: _rows(made) for made in STRUCTURES}}
    for name in {**ours, **theirs}:
        files = ("layers.py", "arguments.h") if name == "Activation" else ("structures.py", "arguments.def")
        for number, rows in enumerate(zip_longest(ours.get(name, []), theirs.get(name, [])), 1):
            if rows[0] != rows[1]:
                found = ", ".join(f"{text} in {file}" for text, file in zip(_described(*rows), files))
                raise BuildError(f"the native loop's {name}: field {number} is {found}")


def _rows(made: Any) -> List[str]:
    """The fields of a structure, and where it ends, as ``layout_text`` writes them."""
    rows = []
    for name, kind in made._fields_:
        place, mark = getattr(made, name), "?" if name in made.optional else ""
        rows.append(f"{name} {_type_name(kind)}{mark} {place.offset} {place.size}")
    return [*rows, f"(end) {ctypes.sizeof(made)}"]


def _type_name(kind: Any) -> str:
    if kind in (NUMBER, REAL):
        return "int64" if kind is NUMBER else "float32"
    if issubclass(kind, ctypes.Array):
        return f"{_type_name(kind._type_)}[{kind._length_}]"
    return kind.__name__


def _described(*rows: Optional[str]) -> List[str]:
    """Two rows that differ: each field's name and type, and where these are equal, its place too."""
    words = [(row or "missing").split() for row in rows]
    placed, texts = words[0][:2] == words[1][:2], []
    for name, *rest in words:
        if len(rest) == 3:  # a field
            kind, offset, size = rest
            texts.append(f"'{name}' ({kind}, {size} bytes at {offset})" if placed else f"'{name}' ({kind})")
        else:
            texts.append(" ".join([name, *rest]))
    return texts
