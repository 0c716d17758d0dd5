"""Flipped bits are found in what this package has written; what others have written is left alone."""

import json
import os

import pytest
import torch

from fb_fairseq.checksums import add_to_weights, check_files, check_weights, own_folder
from fb_fairseq.errors import UserError


def flip(path, at, bit=0):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def write(path, overwrite=False, clean=False, **files):
    with own_folder("--out", str(path), overwrite, clean) as folder:
        for name, text in files.items():
            file = os.path.join(folder, name.replace("_", "/"))
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "w") as opened:
                opened.write(text)


def test_files(tmp_path):
    write(tmp_path, a="some data")
    write(tmp_path, b="more")
    assert set(json.loads((tmp_path / "checksums.json").read_text())) == {"a", "b"}, "those of other files are kept"
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


def test_only_own_files_are_replaced(tmp_path):
    write(tmp_path, a="1", inner_b="2")
    write(tmp_path, a="3", clean=True)
    assert (tmp_path / "a").read_text() == "3" and not (tmp_path / "inner").exists()
    write(tmp_path, a="4", inner_b="5")
    for changed in ("a", "inner/b", "foreign"):
        before = (tmp_path / changed).read_text() if changed != "foreign" else ""
        (tmp_path / changed).write_text("mine")
        message = f"--out .*/{changed}: this command has not written it; g"
        with pytest.raises(UserError, match=message):
            write(tmp_path, a="6", foreign="6", clean=True)
        assert (tmp_path / changed).read_text() == "mine"
        (tmp_path / changed).write_text(before)
    (tmp_path / "inner/mine").write_text("mine")
    write(tmp_path, overwrite=True, clean=True, foreign="7")
    assert sorted(os.listdir(tmp_path)) == ["checksums.json", "foreign", "inner"]
    assert (tmp_path / "foreign").read_text() == "7" and os.listdir(tmp_path / "inner") == ["mine"]


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
