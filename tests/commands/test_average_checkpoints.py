"""fb-fairseq average-checkpoints: means, types, tied weights, and the choice of files."""

import pytest
import torch

from fb_fairseq.commands.average_checkpoints import main


def checkpoint(path, value, **more):
    tied = torch.full((2, 3), float(value))
    model = {"a": tied, "b": tied, "half": torch.full((2,), value, dtype=torch.float16), "count": torch.tensor([value])}
    state = {"model": {**model, **more}, "cfg": {}, "extra_state": {"n": value}, "last_optimizer_state": {"n": value}}
    torch.save(state, path)


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
    assert "last_optimizer_state" not in saved and saved["written_by"] == "average-checkpoints"
    assert saved["model"]["half"].dtype == torch.float16 and saved["model"]["half"][0] == mean
    assert saved["model"]["count"].item() == last, "integers are those of the last checkpoint"
    assert saved["model"]["a"].data_ptr() == saved["model"]["b"].data_ptr(), "tied weights stay tied"


def test_named_files(folder):
    files = [str(folder / f"checkpoint{epoch}.pt") for epoch in (1, 2, 9)]
    main(["--inputs", *files, "--output", str(folder / "out.pt")])
    assert torch.load(folder / "out.pt")["model"]["a"].unique().item() == 4


def test_all_that_there_are(folder):
    """As many as are asked for are enough."""
    main(["--inputs", str(folder), "--num-epoch-checkpoints", "4", "--output", str(folder / "out.pt")])
    assert torch.load(folder / "out.pt")["model"]["a"].unique().item() == 22 / 4


@pytest.mark.parametrize("odd", [0, 1, 2])
@pytest.mark.parametrize("more", [{"half": torch.zeros(3)}, {"more": torch.zeros(1)}], ids=["shape", "name"])
def test_other_models_are_refused(tmp_path, capsys, odd, more):
    """Whichever of them is the other one, in a single parameter."""
    files = [str(tmp_path / f"{i}.pt") for i in range(3)]
    for i, file in enumerate(files):
        checkpoint(file, i, **(more if i == odd else {}))
    with pytest.raises(SystemExit):
        main(["--inputs", *files, "--output", str(tmp_path / "out.pt")])
    assert "the names or shapes of parameters differ" in capsys.readouterr().err
    assert not (tmp_path / "out.pt").exists()
