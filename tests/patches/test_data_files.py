"""Damaged data are refused in one line that names the file."""

import os
import struct

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from fb_fairseq import patches  # noqa: F401
from fb_fairseq.errors import UserError

SIZES, POINTERS = 26, 26 + 3 * 4  # where they begin in an index of three items


@pytest.fixture
def prefix(tmp_path):
    builder = MMapIndexedDatasetBuilder(str(tmp_path / "train.bin"), dtype=np.int32)
    for item in ([4, 5, 2], [2], [6, 2]):
        builder.add_item(torch.tensor(item))
    builder.finalize(str(tmp_path / "train.idx"))
    return str(tmp_path / "train")


def load(prefix):
    dictionary = Dictionary()
    for symbol in "abc":
        dictionary.add_symbol(symbol)
    return data_utils.load_indexed_dataset(prefix, dictionary)


def overwrite(path, at, form, value):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(struct.pack(form, value))


def test_what_is_intact_is_read(prefix):
    assert [item.tolist() for item in load(prefix)] == [[4, 5, 2], [2], [6, 2]]


@pytest.mark.parametrize(
    "at, form, value, message",
    [
        (9, "<Q", 2, "train.idx: is truncated or corrupt"),  # the version
        (17, "<B", 99, "train.idx: is truncated or corrupt"),  # the type
        (18, "<Q", 2**62, "train.idx: is truncated or corrupt"),  # the number of items
        (SIZES + 4, "<i", -1, "train.idx: is truncated or corrupt"),
        (SIZES + 8, "<i", 10, "train.bin: has 24 bytes, and .* describes 56"),
        (POINTERS, "<q", 4, "train.idx: is truncated or corrupt"),
        (POINTERS + 8, "<q", 0, "train.idx: is truncated or corrupt"),  # the second item overlaps the first
        (POINTERS + 16, "<q", 2**60, "train.idx: is truncated or corrupt"),
    ],
)
def test_a_damaged_index(prefix, at, form, value, message):
    overwrite(f"{prefix}.idx", at, form, value)
    with pytest.raises(UserError, match=message):
        load(prefix)


@pytest.mark.parametrize("token", [-1, 7, -(2**31)])
def test_tokens_that_the_dictionary_does_not_have(prefix, token):
    overwrite(f"{prefix}.bin", 4, "<i", token)
    message = f"train.bin: contains the token {token}, but the dictionary has only 7 symbols"
    with pytest.raises(UserError, match=message):
        load(prefix)


def test_numbers_that_are_no_tokens(tmp_path):
    prefix = str(tmp_path / "train")
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.float64)
    builder.add_item(torch.tensor([4.0, 2.0]))
    builder.finalize(f"{prefix}.idx")
    with pytest.raises(UserError, match="train.idx: describes numbers of type float.., not tokens"):
        load(prefix)


def test_an_index_of_the_older_format(prefix):
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"TNTIDX\x00\x00" + struct.pack("<Q", 1) + b"too short")
    with pytest.raises(UserError, match="train.idx: is truncated or corrupt, or not of --dataset-impl"):
        load(prefix)


@pytest.mark.parametrize("name", ["train.idx", "train.bin", "dict.txt"])
def test_pipes(prefix, tmp_path, name):
    if os.path.exists(tmp_path / name):
        os.remove(tmp_path / name)
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match=f"{name}: is a device or a pipe"):
        Dictionary.load(str(tmp_path / name)) if name == "dict.txt" else load(prefix)
