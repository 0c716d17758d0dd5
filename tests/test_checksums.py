"""Flipped bits are found in what this package has written; what others have written is left alone."""

import json
import os

import pytest
import torch

from fb_fairseq.checksums import add_to_weights, check_files, check_weights, write_checksums
from fb_fairseq.errors import UserError


def flip(path, at, bit=0):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def test_files(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new/a").write_bytes(b"some data")
    write_checksums(str(tmp_path / "new"), str(tmp_path))
    os.rename(tmp_path / "new/a", tmp_path / "a")
    os.rename(tmp_path / "new/checksums.json", tmp_path / "checksums.json")
    (tmp_path / "new/b").write_bytes(b"more")
    write_checksums(str(tmp_path / "new"), str(tmp_path))
    assert set(json.loads((tmp_path / "new/checksums.json").read_text())) == {"a", "b"}, "those of other files are kept"
    (tmp_path / "other").write_text("of another program")
    check_files(str(tmp_path / "a"), str(tmp_path / "other"))
    for at in range(9):
        flip(tmp_path / "a", at, at % 8)
        with pytest.raises(UserError, match=r"/a: is damaged: its checksum is not the one in checksums.json; "):
            check_files(str(tmp_path / "other"), str(tmp_path / "a"))
        flip(tmp_path / "a", at, at % 8)
    for text in ("[1]", "{", '{"a": 1}', "[" * 10**5):
        (tmp_path / "checksums.json").write_text(text)
        with pytest.raises(UserError, match="checksums.json: is damaged"):
            check_files(str(tmp_path / "a"))


def test_weights(tmp_path):
    torch_files = pytest.importorskip("safetensors.torch")
    path = tmp_path / "model.safetensors"
    tensors = {"x": torch.arange(6.0).view(2, 3), "y": torch.ones(5, dtype=torch.int8)}
    torch_files.save_file(tensors, str(path), metadata={"format": "pt"})
    flip(path, path.stat().st_size - 1)
    check_weights(str(tmp_path))  # of another program, without a checksum
    flip(path, path.stat().st_size - 1)
    add_to_weights(str(path))
    check_weights(str(tmp_path))
    loaded = torch_files.load_file(str(path))
    assert all(tensors[name].equal(loaded[name]) for name in tensors)
    with torch_files.safe_open(str(path), "pt") as file:
        assert file.metadata()["format"] == "pt"
    header = int.from_bytes(path.read_bytes()[:8], "little")
    shape = path.read_bytes().index(b"[2, 3]") + 1
    for at in (8 + header, path.stat().st_size - 1, shape):
        flip(path, at)
        with pytest.raises(UserError, match="model.safetensors: is damaged: its checksum is another"):
            check_weights(str(tmp_path))
        flip(path, at)
    torch_files.save_file({"x": torch.zeros(1)}, str(path))  # another program writes it anew
    check_weights(str(tmp_path))
