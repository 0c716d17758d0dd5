"""Flipped bits are found in the weights that this package has written; what others have written is left alone."""

import pytest

from fb_fairseq.checksums import ENTRY, add_to_weights, check_weights, facts_in
from fb_fairseq.errors import UserError

FACTS = {"updates": 7, "license": "mit", "notes": [["é", "|"]]}


def flip(path, at, bit=0):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def test_weights(tmp_path):
    torch_files = pytest.importorskip("safetensors.torch")
    import torch

    path = tmp_path / "model.safetensors"
    tensors = {"x": torch.arange(6.0).view(2, 3), "y": torch.ones(5, dtype=torch.int8)}
    torch_files.save_file(tensors, str(path), metadata={"format": "pt"})
    flip(path, path.stat().st_size - 1)
    check_weights(str(tmp_path))  # of another program, without a checksum
    assert facts_in(str(tmp_path)) == facts_in(str(tmp_path / "nothing")) == {}
    flip(path, path.stat().st_size - 1)
    add_to_weights(str(path), FACTS)
    check_weights(str(tmp_path))
    assert facts_in(str(tmp_path)) == {**FACTS, "notes": [("é", "|")]}
    loaded = torch_files.load_file(str(path))
    assert all(tensors[name].equal(loaded[name]) for name in tensors)
    with torch_files.safe_open(str(path), "pt") as file:
        assert file.metadata()["format"] == "pt" and ENTRY in file.metadata()
    content = path.read_bytes()
    header = int.from_bytes(content[:8], "little")
    for at in (8 + header, len(content) - 1, content.index(b"[2, 3]") + 1, content.index(b'updates\\": 7') + 11):
        flip(path, at)
        with pytest.raises(UserError, match="model.safetensors: is damaged: its checksum is another"):
            check_weights(str(tmp_path))
        flip(path, at)
    torch_files.save_file({"x": torch.zeros(1)}, str(path))  # another program writes it anew
    check_weights(str(tmp_path))
    assert facts_in(str(tmp_path)) == {}, "which were of other weights"
