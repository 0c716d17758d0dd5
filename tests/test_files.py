"""Files appear whole or not at all, and replace only what the same command has written."""

import os
import stat
from pathlib import Path

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write, check_output_file, open_text, write_json


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error), atomic_write(str(path)) as temporary:
        Path(temporary).write_text("ha")
        raise error
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_errors_name_the_file_that_the_user_knows(tmp_path):
    """Where they are about the new one."""
    path = str(tmp_path / "file")
    with pytest.raises(OSError) as raised, atomic_write(path) as temporary:
        raise OSError(28, "No space left on device", temporary)
    assert (raised.value.filename, raised.value.filename2) == (path, None)
    with pytest.raises(OSError) as raised, atomic_write(path):
        raise OSError(2, "No such file", "other", None, "another")
    assert (raised.value.filename, raised.value.filename2) == ("other", "another")


def test_permissions_are_those_of_any_new_file(tmp_path):
    with atomic_write(str(tmp_path / "a")) as temporary, open(temporary, "w"), open(tmp_path / "b", "w"):
        pass
    assert os.stat(tmp_path / "a").st_mode == os.stat(tmp_path / "b").st_mode


def test_other_files_are_left_alone(tmp_path):
    """Neither a file of a similar name nor one that a link leads to is written to."""
    (tmp_path / "file.tmp").write_text("mine")
    (tmp_path / "target").write_text("mine")
    os.symlink(tmp_path / "target", tmp_path / "link")
    for name in ("file", "link"):
        with atomic_write(str(tmp_path / name)) as temporary:
            Path(temporary).write_text("new")
        assert (tmp_path / name).read_text() == "new"
    assert (tmp_path / "file.tmp").read_text() == (tmp_path / "target").read_text() == "mine"


def test_pipes_and_devices_are_not_replaced(tmp_path):
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    for path in (pipe, os.devnull):
        with pytest.raises(UserError, match="is no file, but a folder, a device or a pipe"), atomic_write(path):
            pytest.fail("nothing is written")
        with pytest.raises(UserError, match=f"--out {path}: is no file, but a folder, a device or a pipe"):
            check_output_file("--out", path, "writer")
    assert stat.S_ISFIFO(os.stat(pipe).st_mode) and os.path.exists(os.devnull)


@pytest.mark.parametrize("path", ["", "new/"])
def test_a_path_without_a_name(path):
    with pytest.raises(UserError, match=f"--out {path}: has no name of a file; give one"):
        check_output_file("--out", path, "writer")


def test_two_writers_of_a_file(tmp_path):
    """Each writes a file of its own, which is there until it has ended."""
    path = tmp_path / "file"
    with atomic_write(str(path)) as first:
        Path(first).write_text("first")
        with atomic_write(str(path)) as second:
            Path(second).write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"


def test_a_file_names_its_writer(tmp_path):
    """Nothing else will do: a file of the same format may be the user's."""
    path = str(tmp_path / "result")
    for text, command in (
        ('{"accuracy": 0.9}', "one"),
        ('{"written_by": "other"}', "one"),
        ('{"written_by": "one-more"}', "one"),
        ("one written_by", "one"),
    ):
        (tmp_path / "result").write_text(text)
        with pytest.raises(UserError, match=f"--out {path}: this command has not written it; give another path"):
            check_output_file("--out", path, command)
        check_output_file("--out", path, command, overwrite=True)
    write_json(path, "one", {"accuracy": 0.9})
    check_output_file("--out", path, "one")
    (tmp_path / "result").write_text("")
    check_output_file("--out", path, "one")


def test_pipes_of_a_shell_are_read():
    reading, writing = os.pipe()
    os.write(writing, b"text")
    os.close(writing)
    with open_text(f"/dev/fd/{reading}") as file:
        assert file.read() == "text"
    os.close(reading)


def test_text_of_another_encoding(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("größer".encode("latin-1"))
    with pytest.raises(UserError, match="text: is not UTF-8 text"), open_text(str(path)) as file:
        file.read()
