"""Whatever is wrong with a checkpoint's content is one line that names the file."""

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.tensor_files import load_checkpoint, load_file, using


@pytest.mark.parametrize("content", [[1], {"state": 1}])
def test_other_files_of_tensors_are_no_checkpoints(tmp_path, content):
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(UserError, match="x.pt: not a checkpoint of fairseq; give"):
        load_checkpoint(str(tmp_path / "x.pt"))


def test_what_goes_wrong_while_it_is_used_is_one_line(monkeypatch):
    monkeypatch.delenv("FB_FAIRSEQ_DEBUG", raising=False)
    with pytest.raises(UserError, match=r"^x.pt: its content does not fit \(KeyError: 'a'\); give an intact"):
        with using("x.pt"):
            {}["a"]
    with pytest.raises(FileNotFoundError), using("x.pt"):
        open("missing")
    monkeypatch.setenv("FB_FAIRSEQ_DEBUG", "1")
    with pytest.raises(KeyError), using("x.pt"):
        {}["a"]


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("archive", [True, False])
def test_how_torch_reads_a_file(archive, mapped, tmp_path, monkeypatch):
    """Nothing but data, to the CPU; the old format cannot be mapped."""
    torch.save({"model": {}}, tmp_path / "x.pt", _use_new_zipfile_serialization=archive)
    monkeypatch.setattr(torch, "load", lambda path, **how: how)
    expected = dict(map_location="cpu", weights_only=True, mmap=mapped and archive)
    assert load_file(str(tmp_path / "x.pt"), mapped) == expected
