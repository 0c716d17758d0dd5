"""Facts in the header of weights are read again, and end where another program writes other weights."""

import pytest

from fb_fairseq.checksums import add_to_weights, facts_in

FACTS = {"updates": 7, "license": "mit", "notes": [["é", "|"]]}


def test_facts_of_weights(tmp_path):
    torch_files = pytest.importorskip("safetensors.torch")
    import torch

    path = tmp_path / "model.safetensors"
    tensors = {"x": torch.arange(6.0).view(2, 3), "y": torch.ones(5, dtype=torch.int8)}
    torch_files.save_file(tensors, str(path), metadata={"format": "pt"})
    assert facts_in(str(tmp_path)) == facts_in(str(tmp_path / "nothing")) == {}
    add_to_weights(str(path), FACTS)
    assert facts_in(str(tmp_path)) == {**FACTS, "notes": [("é", "|")]}
    loaded = torch_files.load_file(str(path))
    assert all(tensors[name].equal(loaded[name]) for name in tensors)
    with torch_files.safe_open(str(path), "pt") as file:
        assert file.metadata()["format"] == "pt"
    torch_files.save_file({"x": torch.zeros(1)}, str(path))  # another program writes it anew
    assert facts_in(str(tmp_path)) == {}, "which were of other weights"
