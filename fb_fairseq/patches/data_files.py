"""Refuse damaged data files, and data that do not fit the dictionary, in one line that names the file."""

import errno
import os
import struct

import numpy as np

from fb_fairseq.errors import UserError
from fb_fairseq.files import check_regular
from fb_fairseq.patches.wrapping import wrap_once

MAGIC = b"MMIDIDX\x00\x00"  # of fairseq's memory-mapped index files
HEADER = struct.Struct("<QBQ")  # version, code of the tokens' type, number of items
PREPARE = "prepare the data again (fairseq-preprocess, or python -m fb_fairseq preprocess-bytes)"


def patch_indexed_data() -> None:
    """Check binarised data when they are loaded.

    fairseq reports a truncated file as ``buffer is smaller than requested size`` in the middle of an epoch, and tokens
    that the dictionary does not have as ``index out of range in self``. Items that overlap it takes as they are."""
    from fairseq.data import indexed_dataset

    wrap_once(indexed_dataset, "infer_dataset_impl", "indexed_data", _infer_from_files)
    wrap_once(indexed_dataset, "make_dataset", "indexed_data", _make_checked_dataset)


def _infer_from_files(original, path):
    check_regular(f"{path}.idx")
    return original(path)


def _make_checked_dataset(original, path, impl, fix_lua_indexing=False, dictionary=None):
    check_index(path)
    try:
        dataset = original(path, impl, fix_lua_indexing=fix_lua_indexing, dictionary=dictionary)
    except (OSError, UserError):
        raise
    except Exception:  # of struct, numpy, …, in the older formats
        raise UserError(f"{path}.idx: is truncated or corrupt, or not of --dataset-impl {impl}; {PREPARE}") from None
    index = getattr(dataset, "_index", None)
    if dictionary is not None and hasattr(index, "dtype") and len(dataset):
        tokens = np.frombuffer(dataset._bin_buffer, dtype=index.dtype)
        if not np.issubdtype(tokens.dtype, np.integer):
            raise UserError(f"{path}.idx: describes numbers of type {tokens.dtype}, not tokens; {PREPARE}")
        for token in (int(tokens.min()), int(tokens.max())):
            if not 0 <= token < len(dictionary):
                raise UserError(
                    f"{path}.bin: contains the token {token}, but the dictionary has only {len(dictionary)} symbols; "
                    f"use the dictionary that the data were prepared with, or {PREPARE}"
                )
    return dataset


def check_index(path: str) -> None:
    """Check that the memory-mapped files ``path``.idx and ``path``.bin are complete, and that their items follow each
    other. Other formats, and missing files, pass."""
    from fairseq.data.indexed_dataset import _code_to_dtype

    for name in (f"{path}.idx", f"{path}.bin"):
        check_regular(name)
        if os.path.isdir(name):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not os.path.exists(name):
            return
    with open(f"{path}.idx", "rb") as file:
        magic, header = file.read(len(MAGIC)), file.read(HEADER.size)
        if magic != MAGIC[: len(magic)]:
            return  # another format
        is_complete = len(header) == HEADER.size
        if is_complete:
            version, code, items = HEADER.unpack(header)
            is_complete = version == 1 and code in _code_to_dtype
            is_complete = is_complete and os.path.getsize(f"{path}.idx") == file.tell() + 12 * items
        if is_complete:
            lengths = np.fromfile(file, dtype=np.int32, count=items)
            ends = lengths.cumsum(dtype=np.int64) * np.dtype(_code_to_dtype[code]).itemsize
            starts = np.fromfile(file, dtype=np.int64, count=items)
            is_complete = (lengths >= 0).all() and (starts[:1] == 0).all() and (starts[1:] == ends[:-1]).all()
        if not is_complete:
            raise UserError(f"{path}.idx: is truncated or corrupt; {PREPARE}")
        expected = int(ends[-1]) if items else 0
    size = os.path.getsize(f"{path}.bin")
    if size != expected:
        raise UserError(f"{path}.bin: has {size} bytes, and {path}.idx describes {expected}; {PREPARE}")
    if not size:
        raise UserError(f"{path}: the split is empty; {PREPARE}")


def patch_dictionary_errors() -> None:
    """Name the file and the fault of a malformed dictionary in one line."""
    from fairseq.data import Dictionary

    wrap_once(Dictionary, "add_from_file", "dictionary_errors", _add_from_file)


def _add_from_file(original, self, f):
    if isinstance(f, str):
        check_regular(f)
    try:
        original(self, f)
    except (OSError, UserError):
        raise
    except Exception as error:  # fairseq raises ValueError, RuntimeError and Exception
        if not isinstance(f, str):
            raise
        fault = str(error).partition(". ")[0].partition(", please")[0].replace(f" in {f}", "")
        raise UserError(f"{f}: {fault}; give the dict.txt that the data were prepared with") from None
