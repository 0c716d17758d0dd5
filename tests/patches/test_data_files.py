"""Data of which the end is missing, and wrong dictionaries, are refused when they are loaded."""

import os

import pytest
from fairseq.data import Dictionary, data_utils

from fb_fairseq import patches  # noqa: F401
from fb_fairseq.errors import UserError
from tests.streams.fairseq.indexed import write


@pytest.mark.parametrize("end", ["bin", "idx"])
def test_cut_data(tmp_path, end):
    prefix = str(tmp_path / "train")
    lines = [[4, 5, 2], [2], [6, 2]]
    write(prefix, lines)
    assert [item.tolist() for item in data_utils.load_indexed_dataset(prefix, None)] == lines
    for size in (os.path.getsize(f"{prefix}.{end}") - 1, 20, 0):
        os.truncate(f"{prefix}.{end}", size)
        with pytest.raises(UserError, match="train.idx, .bin: one of them is cut off"):
            data_utils.load_indexed_dataset(prefix, None)


@pytest.mark.parametrize(
    "content", [b"the\nof\n", b"the 3\n\xff 1\n", b"the 3\nthe 3\n"], ids=["words", "latin", "twice"]
)
def test_wrong_dictionaries(tmp_path, content):
    path = tmp_path / "dict.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"{path}: is no dictionary of fairseq, .*; give that of fairseq-preprocess"):
        Dictionary.load(str(path))
