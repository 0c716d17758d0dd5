"""Facts in the header of weights are read again, and end where another program writes other weights."""

import pytest

from fb_fairseq.checksums import facts_in


def test_facts_of_weights(tmp_path):
    torch_files = pytest.importorskip("safetensors.torch")
    import torch

    path, tensors = str(tmp_path / "model.safetensors"), {"x": torch.zeros(1)}
    entries = ({}, {"format": "pt"}, {"fb_fairseq_facts": "["}, {"fb_fairseq_facts": '{"updates": "7"}'})
    for others in entries:
        torch_files.save_file(tensors, path, others)
        assert facts_in(str(tmp_path)) == facts_in(str(tmp_path / "nothing")) == {}
    torch_files.save_file(tensors, path, {"fb_fairseq_facts": '{"updates": 7, "notes": [["é", "|"]]}'})
    assert facts_in(str(tmp_path)) == {"updates": 7, "notes": [("é", "|")]}
