"""Whatever is wrong with a checkpoint's content is one line that names the file."""

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.tensor_files import load_checkpoint, using


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
