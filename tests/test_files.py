"""Files appear whole or not at all, and replace only what the same command has written."""

import os
import stat
import subprocess
import sys

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write, check_output_file, open_text, write_json
from tests.conftest import REPOSITORY


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "file"
    with atomic_write(str(path)) as temporary:
        with open(temporary, "w") as file:
            file.write("new")
        assert not path.exists()
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error), atomic_write(str(path)) as temporary:
        with open(temporary, "w") as file:
            file.write("ha")
        raise error
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_permissions_are_those_of_any_new_file(tmp_path):
    with atomic_write(str(tmp_path / "a")) as temporary, open(temporary, "w"), open(tmp_path / "b", "w"):
        pass
    assert os.stat(tmp_path / "a").st_mode == os.stat(tmp_path / "b").st_mode


def test_other_files_are_left_alone(tmp_path):
    """Neither a file of a similar name nor one that a link leads to is written to; a pipe is not replaced."""
    (tmp_path / "file.tmp").write_text("mine")
    (tmp_path / "target").write_text("mine")
    os.symlink(tmp_path / "target", tmp_path / "link")
    for name in ("file", "link"):
        with atomic_write(str(tmp_path / name)) as temporary, open(temporary, "w") as file:
            file.write("new")
        assert (tmp_path / name).read_text() == "new"
    assert (tmp_path / "file.tmp").read_text() == (tmp_path / "target").read_text() == "mine"
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), os.devnull):
        with pytest.raises(UserError, match="is no file, but a folder, a device or a pipe"), atomic_write(path):
            pytest.fail("nothing is written")
        with pytest.raises(UserError, match=f"--out {path}: is no file, but a folder, a device or a pipe"):
            check_output_file("--out", path, "writer")
    for path in ("", f"{tmp_path}/new/"):
        with pytest.raises(UserError, match=f"--out {path}: has no name of a file; give one"):
            check_output_file("--out", path, "writer")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode) and os.path.exists(os.devnull)


def started(path, program):
    """Another process, which runs this and waits."""
    program = (
        f"import sys\nfrom fb_fairseq.files import *\nfrom fb_fairseq.folders import *\n{program}; sys.stdin.read()"
    )
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    return subprocess.Popen([sys.executable, "-c", program, path], **pipes)


def test_what_another_process_writes_stays(tmp_path):
    path = str(tmp_path / "file")
    program = "with atomic_write(sys.argv[1]) as temporary: open(temporary, 'w'); print(temporary, flush=True)"
    with started(path, program) as writer:
        theirs = writer.stdout.readline().strip()
        writer.kill()
    with atomic_write(path) as temporary, open(temporary, "w"):
        pass
    assert os.path.exists(theirs) and os.path.exists(path)


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
