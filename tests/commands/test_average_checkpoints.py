"""fb-fairseq average-checkpoints: means, types, tied weights, and the choice of files."""

import pytest
import torch

from fb_fairseq.commands.average_checkpoints import main


def checkpoint(path, value, **more):
    tied = torch.full((2, 3), float(value))
    model = {"a": tied, "b": tied, "half": torch.full((2,), value, dtype=torch.float16), "count": torch.tensor([value])}
    torch.save({"model": {**model, **more}, "cfg": {}, "extra_state": {"n": value}}, path)


@pytest.fixture
def folder(tmp_path):
    for epoch in (1, 2, 9, 10):
        checkpoint(tmp_path / f"checkpoint{epoch}.pt", epoch)
        checkpoint(tmp_path / f"checkpoint_3_{100 * epoch}.pt", 10 * epoch)
    checkpoint(tmp_path / "checkpoint_last.pt", 77)
    return tmp_path


@pytest.mark.parametrize("kind,mean,last", [("epoch", 9.5, 10), ("update", 95.0, 100)])
def test_the_last_two(folder, kind, mean, last):
    main(["--inputs", str(folder), f"--num-{kind}-checkpoints", "2", "--output", str(folder / "out.pt")])
    saved = torch.load(folder / "out.pt")
    assert saved["model"]["a"].unique().item() == mean and "n" not in saved["extra_state"]
    assert saved["model"]["half"].dtype == torch.float16 and saved["model"]["half"][0] == mean
    assert saved["model"]["count"].item() == last, "integers are those of the last checkpoint"
    assert saved["model"]["a"].data_ptr() == saved["model"]["b"].data_ptr(), "tied weights stay tied"


def test_named_files(folder):
    files = [str(folder / f"checkpoint{epoch}.pt") for epoch in (1, 2, 9)]
    main(["--inputs", *files, "--output", str(folder / "out.pt")])
    assert torch.load(folder / "out.pt")["model"]["a"].unique().item() == 4
