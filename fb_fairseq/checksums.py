"""Checksums of files and of a checkpoint's dictionaries; and the facts of exported weights (``facts.py``).

Facts are an entry in the header of the ``.safetensors`` file itself, which disappears when another program writes the
file anew."""

import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.facts import known_facts
from fb_fairseq.files import atomic_write

WEIGHTS = "model.safetensors"
FACTS_ENTRY = "fb_fairseq_facts"  # in the header of .safetensors
DICTIONARIES = "dictionaries"  # in a checkpoint's extra_state
CHUNK = 1 << 20


def checksum_of(path: str) -> str:
    """The CRC-32 of a file, as text."""
    value = 0
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            value = zlib.crc32(chunk, value)
    return f"{value:08x}"


def dictionary_checksums(dictionaries: Mapping[str, Any]) -> dict[str, str]:
    """The checksums of fairseq's dictionaries, by name: of the symbols in their order. (How often each one occurs
    differs between data.) Dictionaries without symbols are left out."""
    found = {str(name): one.symbols for name, one in dictionaries.items() if hasattr(one, "symbols")}
    text = {name: "\n".join(symbols).encode("utf-8", "surrogatepass") for name, symbols in found.items()}
    return {name: f"{zlib.crc32(symbols):08x}" for name, symbols in text.items()}


def trained_dictionaries(checkpoint: Mapping[str, Any]) -> Any:
    """The checksums of the dictionaries of a checkpoint's training; None if it does not say."""
    return (checkpoint.get("extra_state") or {}).get(DICTIONARIES)


def check_dictionaries(path: str, trained: Any, own: dict[str, str]) -> None:
    """Compare the dictionaries of the data with those of a checkpoint's training.

    Args:
        path: the checkpoint, and perhaps its option.
        trained: see ``trained_dictionaries``.
        own: those of the data."""
    for name, value in own.items():
        if isinstance(trained, dict) and trained.get(name, value) != value:
            raise UserError(
                f"{path}: was trained with another {name} dictionary than that of the data, which has the same size but"
                " other symbols; give data prepared with its dictionary (fairseq-preprocess --srcdict, --tgtdict)"
            )


def add_to_weights(path: str, facts: dict[str, Any]) -> None:
    """Add facts to the header of a ``.safetensors`` file."""
    header, data_at = _read_header(path)
    header.setdefault("__metadata__", {})[FACTS_ENTRY] = json.dumps(facts)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors are aligned
    with atomic_write(path) as temporary, open(path, "rb") as old, open(temporary, "wb") as new:
        new.write(len(text).to_bytes(8, "little") + text)
        old.seek(data_at)
        for chunk in iter(lambda: old.read(CHUNK), b""):
            new.write(chunk)


def facts_in(folder: str) -> dict[str, Any]:
    """The facts of the weights in a folder; empty if their file has none."""
    try:
        header, _ = _read_header(os.path.join(folder, WEIGHTS))
        return known_facts(json.loads(header["__metadata__"][FACTS_ENTRY]))
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def weights_in(folder: str) -> list[str]:
    """The paths of the ``.safetensors`` files in a folder."""
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".safetensors")]


def _read_header(path: str) -> tuple[dict[str, Any], int]:
    """The header of a ``.safetensors`` file, and where the tensors begin."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > os.path.getsize(path):
            raise ValueError(f"{path}: a header longer than the file")
        return json.loads(file.read(length)), 8 + length
