"""Files that run code when they are read without protection, and damaged files, made by the tests themselves."""

import io
import os
import pathlib
import pickle
import zipfile
from collections.abc import Callable

import numpy as np
import torch

MULTIARRAY = (getattr(np, "_core", None) or np.core).multiarray


class Runs:
    """Pickled, it calls a function when it is loaded, and if a state is given, has the result take it."""

    def __init__(self, function: Callable, *arguments, state=None):
        self.call = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.call


def numpy_type(code: str, size: int = -1, inner=(None, None, None)) -> Runs:
    """A pickled type of numpy's with any state."""
    return Runs(np.dtype, code, False, True, state=(3, "|", *inner, size, 1, 0))


def numpy_array(shape, kind, data) -> Runs:
    """A pickled array of numpy's with any state."""
    return Runs(MULTIARRAY._reconstruct, np.ndarray, (0,), b"b", state=(1, shape, kind, False, data))


# Values that numpy would build although they do not fit together; some of them end the process.
NUMPY_VALUES = {
    "a_negative_size": Runs(MULTIARRAY.scalar, numpy_type("V8", -8), b"12345678"),
    "another_size": Runs(MULTIARRAY.scalar, numpy_type("f8", -8), b"1234"),
    "inner_types": Runs(MULTIARRAY.scalar, numpy_type("V8", 8, ((), ("a",), {"a": (np.dtype("O"), 0)})), b"12345678"),
    "an_object": Runs(MULTIARRAY.scalar, numpy_type("O", 8), b"12345678"),
    "an_empty_array": Runs(np.ndarray, (10**6,), "O"),
    "a_short_array": numpy_array((1000,), np.dtype("f8"), b"12345678"),
    "a_negative_shape": numpy_array((-1,), np.dtype("f8"), b"12345678"),
    "an_array_of_objects": numpy_array((1,), numpy_type("O", 8), [[]]),
}


def touch(marker: pathlib.Path) -> Runs:
    return Runs(os.system, f"touch '{marker}'")


def code(marker: pathlib.Path) -> str:
    """An expression that creates the file, for ``eval``."""
    return f"__import__('pathlib').Path({str(marker)!r}).touch() or [5]"


def malicious_files(folder: pathlib.Path, marker: pathlib.Path, checkpoint: dict) -> dict[str, pathlib.Path]:
    """Writes files, some with a good checkpoint's content, that create ``marker`` if their code runs; by kind."""
    bad = touch(marker)
    contents = {
        "alone": bad,
        "extra_state": {**checkpoint, "extra_state": {"x": bad}},
        "in_the_model": {**checkpoint, "model": {**checkpoint["model"], "x": bad}},
        "in_the_options": {**checkpoint, "cfg": bad},
        "evaluated": {**checkpoint, "x": Runs(eval, code(marker))},
        "imported": {**checkpoint, "x": Runs(__import__, "antigravity")},
        "a_nested_pickle": {**checkpoint, "x": Runs(pickle.loads, pickle.dumps(bad))},
        **{name: {**checkpoint, "x": value} for name, value in NUMPY_VALUES.items()},
        "torch_load": {**checkpoint, "x": Runs(torch.hub.load_state_dict_from_url, "http://localhost:1/x")},
    }
    paths = {}
    for name, content in contents.items():
        for kind, options in (("zip", {}), ("legacy", {"_use_new_zipfile_serialization": False})):
            paths[f"{name} ({kind})"] = folder / f"{name}-{kind}.pt"
            torch.save(content, paths[f"{name} ({kind})"], **options)
    paths["a plain pickle"] = folder / "plain.pt"
    paths["a plain pickle"].write_bytes(pickle.dumps({**checkpoint, "x": bad}))
    paths["TorchScript"] = folder / "script.pt"
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(paths["TorchScript"]))
    paths["a zip of a pickle"] = folder / "data.pt"
    with zipfile.ZipFile(paths["a zip of a pickle"], "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(bad))
        archive.writestr("archive/version", "3\n")
    return paths


def flip(path: pathlib.Path, record: int, where: float) -> bytes:
    """A file of torch.save with one bit flipped in a record, at a place in it from 0 to 1. Record 0 is the largest.
    (Between records there is padding, where a flipped bit does no harm.)"""
    content = bytearray(path.read_bytes())
    records = zipfile.ZipFile(io.BytesIO(bytes(content))).infolist()
    chosen = sorted(records, key=lambda info: info.file_size, reverse=True)[record]
    header = chosen.header_offset
    names = sum(int.from_bytes(content[header + at : header + at + 2], "little") for at in (26, 28))
    content[header + 30 + names + int(where * (chosen.file_size - 1))] ^= 0x40
    return bytes(content)
