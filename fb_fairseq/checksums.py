"""Checksums of files, and of the dictionaries that a checkpoint was trained with."""

import zlib
from collections.abc import Mapping
from typing import Any

from fb_fairseq.errors import UserError

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
    """The checksums of fairseq's dictionaries, by name. A checksum covers the symbols in their order, not how
    often each one occurs, which differs between data. Dictionaries without symbols are left out.
    """
    return {
        str(name): "{:08x}".format(zlib.crc32("\n".join(one.symbols).encode("utf-8", "surrogatepass")))
        for name, one in dictionaries.items()
        if hasattr(one, "symbols")
    }


def trained_dictionaries(checkpoint: Mapping[str, Any]) -> Any:
    """The checksums of the dictionaries of a checkpoint's training; None if it does not say."""
    return (checkpoint.get("extra_state") or {}).get(DICTIONARIES)


def check_dictionaries(path: str, trained: Any, own: dict[str, str]) -> None:
    """Compare the dictionaries of the data with those of a checkpoint's training.

    Args:
        path: the checkpoint's path for the message, perhaps after the option that named it.
        trained: see ``trained_dictionaries``.
        own: the checksums of the data's dictionaries, by name.
    """
    for name, value in own.items():
        if isinstance(trained, dict) and trained.get(name, value) != value:
            raise UserError(
                f"{path}: was trained with another {name} dictionary than that of the data: other symbols, or another"
                " order; give data prepared with its dictionary (fairseq-preprocess --srcdict, --tgtdict)"
            )
