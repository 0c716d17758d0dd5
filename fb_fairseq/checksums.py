"""Checksums: of a checkpoint's dictionaries, and of exported models, so that a flipped bit is not read as data.

The latter is an entry in the header of the ``.safetensors`` file itself, which disappears when another program writes
the file anew. So does the entry beside it: what is known of how the model was made (``facts.py``). (torch's files have
checksums of their own.)"""

import json
import os
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

from fb_fairseq.errors import UserError
from fb_fairseq.facts import known_facts
from fb_fairseq.files import atomic_write, check_regular

WEIGHTS = "model.safetensors"
ENTRY, FACTS_ENTRY = "fb_fairseq_checksum", "fb_fairseq_facts"  # in the header of .safetensors
DICTIONARIES = "dictionaries"  # in a checkpoint's extra_state
CHUNK = 1 << 20


def checksum(file: BinaryIO, start: int = 0) -> str:
    """The CRC-32 of the rest of a file, as text. ``start``: the CRC-32 of what comes before."""
    value = start
    for chunk in iter(lambda: file.read(CHUNK), b""):
        value = zlib.crc32(chunk, value)
    return f"{value:08x}"


def checksum_of(path: str) -> str:
    """The checksum of a whole file."""
    with open(path, "rb") as file:
        return checksum(file)


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
    """Add facts and a checksum to the header of a ``.safetensors`` file."""
    header, data_at = _read_header(path)
    entries = header.setdefault("__metadata__", {})
    entries[FACTS_ENTRY] = json.dumps(facts)
    entries[ENTRY] = _checksum_of_weights(path, header, data_at)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors are aligned
    with atomic_write(path) as temporary, open(path, "rb") as old, open(temporary, "wb") as new:
        new.write(len(text).to_bytes(8, "little") + text)
        old.seek(data_at)
        for chunk in iter(lambda: old.read(CHUNK), b""):
            new.write(chunk)


def facts_in(folder: str) -> dict[str, Any]:
    """The facts of the weights in a folder, which ``check_weights`` has compared with their checksum; empty if their
    file has none."""
    try:
        header, _ = _read_header(os.path.join(folder, WEIGHTS))
        return known_facts(json.loads(header["__metadata__"][FACTS_ENTRY]))
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def check_weights(folder: str) -> None:
    """Compare the ``.safetensors`` files in a folder with their checksums, where they have one."""
    for path in weights_in(folder):
        check_regular(path)
        try:
            header, data_at = _read_header(path)
            known = header["__metadata__"][ENTRY]
        except (ValueError, KeyError, TypeError, RecursionError):  # without one; safetensors reports what is malformed
            continue
        if known != _checksum_of_weights(path, header, data_at):
            raise UserError(f"{path}: is damaged: its checksum is another; give an intact copy, or export it again")


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


def _checksum_of_weights(path: str, header: dict[str, Any], data_at: int) -> str:
    """The checksum of the tensors and of what the header says of them, facts included."""
    described = {name: value for name, value in header.items() if name != "__metadata__"}
    if FACTS_ENTRY in header["__metadata__"]:
        described[FACTS_ENTRY] = header["__metadata__"][FACTS_ENTRY]
    with open(path, "rb") as file:
        file.seek(data_at)
        return checksum(file, zlib.crc32(json.dumps(described, sort_keys=True).encode()))
