"""Which memory files are kept and which are loaded, whatever their dates."""

import os

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.streams.checkpoints import MemoryFiles
from fb_fairseq.streams.position import StreamPosition

MEMORY = [([0, 1], torch.ones(1, 3, 2, 4))]


def position(epoch, turns):
    """A position after so many turns of an epoch."""
    return StreamPosition(epoch=epoch, turns=turns, offsets=[7 * turns], streams=2, tokens=99, fingerprint=5)


def files(folder, storage="exact"):
    """Memory files of a run that was restored from the checkpoint in a folder."""
    memory_files = MemoryFiles(storage)
    memory_files.restored_from = str(folder / "checkpoint_last.pt")
    return memory_files


def save(memory_files, folder, epoch, turns, rank=0, processes=1, run="a"):
    """Save ``MEMORY`` as that of a process at a position."""
    memory_files.save(str(folder), position(epoch, turns), run=run, rank=rank, processes=processes, states=MEMORY)


def kept(folder):
    """The names of the files in a folder."""
    return sorted(path.name for path in folder.glob("*"))


def name(epoch, turns, rank=0):
    """What the file of a process at a position is called."""
    return f"stream_memory.{epoch}.{turns}.rank{rank}.pt"


def set_date(path, days):
    """Make a file so many days younger."""
    date = path.stat().st_mtime + days * 86400
    os.utime(path, (date, date))


def test_the_last_two_are_kept_whatever_their_dates(tmp_path):
    """Clocks are set back, and copies (rsync -a) keep dates."""
    memory_files = files(tmp_path)
    for turns in (2, 4, 10, 12):
        save(memory_files, tmp_path, 1, turns)
        for path in tmp_path.glob("*"):
            set_date(path, 2)
    assert kept(tmp_path) == [name(1, 10), name(1, 12)]
    save(memory_files, tmp_path, 2, 1)
    assert kept(tmp_path) == [name(1, 12), name(2, 1)]


def test_a_resumed_run_keeps_what_it_resumed_from(tmp_path):
    """Two processes, resumed from an older checkpoint: later files are left behind; those of the checkpoint stay."""
    for rank in (0, 1):
        save(files(tmp_path), tmp_path, 1, 10, rank, 2)
        save(files(tmp_path), tmp_path, 3, 30, rank, 2)
        set_date(tmp_path / name(3, 30, rank), 2)
    for rank in (0, 1):
        resumed = files(tmp_path)
        assert resumed.load(position(1, 10), "a", rank, [0, 1]).keys() == {0, 1}
        save(resumed, tmp_path, 1, 20, rank, 2)
    assert kept(tmp_path) == sorted(name(1, turns, rank) for turns in (10, 20) for rank in (0, 1))


def test_a_run_resumed_with_fewer_processes_keeps_what_it_resumed_from(tmp_path):
    """Until the checkpoint that was loaded is replaced, also the files of processes that there are no more."""
    for turns, rank in ((5, 1), (10, 0), (10, 1)):
        save(files(tmp_path), tmp_path, 1, turns, rank, 2)
    resumed = files(tmp_path)
    resumed.load(position(1, 10), "a", 0, [0, 1])
    save(resumed, tmp_path, 1, 20)
    assert kept(tmp_path) == [name(1, 10), name(1, 10, 1), name(1, 20)]
    save(resumed, tmp_path, 1, 30)
    assert kept(tmp_path) == [name(1, 20), name(1, 30)]


def test_the_first_file_of_a_new_run_keeps_the_latest_of_another(tmp_path):
    """``checkpoint_last.pt`` belongs to it until fairseq has replaced it."""
    for epoch, turns in ((1, 99), (2, 3)):
        save(files(tmp_path), tmp_path, epoch, turns)
    (tmp_path / "stream_memory.notes.txt").write_text("of the user")
    memory_files = files(tmp_path)
    save(memory_files, tmp_path, 1, 5)
    assert kept(tmp_path) == [name(1, 5), name(2, 3), "stream_memory.notes.txt"]
    save(memory_files, tmp_path, 1, 6)
    assert kept(tmp_path) == [name(1, 5), name(1, 6), "stream_memory.notes.txt"]


def test_another_runs_memory_is_not_loaded(tmp_path, caplog):
    save(files(tmp_path), tmp_path, 1, 10, run="of another run")
    assert files(tmp_path).load(position(1, 10), "a", 0, [0, 1]) == {}
    assert "no memory of the streams was found" in caplog.text


def test_files_from_before_runs_were_identified(tmp_path):
    save(files(tmp_path), tmp_path, 1, 10, run=None)
    assert files(tmp_path).load(position(1, 10), None, 0, [0]).keys() == {0, 1}


def test_a_damaged_file(tmp_path):
    save(files(tmp_path), tmp_path, 1, 10)
    os.truncate(tmp_path / name(1, 10), 500)
    with pytest.raises(UserError, match="rank0.pt: the streams' memory cannot be read.*remove the file") as error:
        files(tmp_path).load(position(1, 10), "a", 0, [0])
    assert "\n" not in str(error.value) and str(error.value).count("rank0.pt") == 1
