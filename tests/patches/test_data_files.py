"""Data of which the end is missing are refused when they are loaded."""

import os

import numpy as np
import pytest
import torch
from fairseq.data import data_utils
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from fb_fairseq import patches  # noqa: F401
from fb_fairseq.errors import UserError


@pytest.mark.parametrize("end", ["bin", "idx"])
def test_cut_data(tmp_path, end):
    prefix = str(tmp_path / "train")
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.int32)
    for item in ([4, 5, 2], [2], [6, 2]):
        builder.add_item(torch.tensor(item))
    builder.finalize(f"{prefix}.idx")
    assert [item.tolist() for item in data_utils.load_indexed_dataset(prefix, None)] == [[4, 5, 2], [2], [6, 2]]
    for size in (os.path.getsize(f"{prefix}.{end}") - 1, 20):
        os.truncate(f"{prefix}.{end}", size)
        with pytest.raises(UserError, match="train.idx, .bin: one of them is cut off"):
            data_utils.load_indexed_dataset(prefix, None)
