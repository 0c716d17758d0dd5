"""Files and folders appear whole or not at all, and only one run writes to a folder."""

import bz2
import gzip
import lzma
import os
import re
import secrets
import stat
import subprocess
import sys
import zipfile

import pytest

from fb_fairseq.commands.preprocess_bytes import read_files
from fb_fairseq.errors import UserError, explain
from fb_fairseq.files import atomic_folder, atomic_write, check_output_file, lock_folder, open_text
from fb_fairseq.tensor_files import load_file
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


@pytest.mark.parametrize("error", [OSError(28, "No space left"), RuntimeError("I/O error: full (os error 28)")])
def test_a_full_disk_is_reported_with_the_file(tmp_path, error):
    """Python's errors in writing have no name; those of safetensors, which is written in Rust, are no OSErrors."""
    for write in (atomic_write, atomic_folder):
        with pytest.raises(OSError) as found, write(str(tmp_path / "name")):
            raise error
        assert explain(found.value) == f"{tmp_path / 'name'}: No space left on device"


def test_a_folder_gets_all_files_or_none(tmp_path):
    (tmp_path / "kept").write_text("old")
    with pytest.raises(ValueError), atomic_folder(str(tmp_path)) as temporary:
        (tmp_path / os.path.basename(temporary) / "a").write_text("new")
        raise ValueError
    assert os.listdir(tmp_path) == ["kept"]
    with atomic_folder(str(tmp_path / "new")) as temporary:
        for name in "ab":
            with open(os.path.join(temporary, name), "w") as file:
                file.write(name)
        assert [name for name in os.listdir(tmp_path / "new") if not name.startswith(".")] == []
    assert sorted(os.listdir(tmp_path / "new")) == ["a", "b"]
    for text in ("old", "new"):  # folders in it are merged
        with atomic_folder(str(tmp_path / "new")) as temporary:
            os.mkdir(os.path.join(temporary, "inner"))
            with open(os.path.join(temporary, "inner", text), "w") as file:
                file.write(text)
    assert sorted(os.listdir(tmp_path / "new")) == ["a", "b", "inner"]
    assert sorted(os.listdir(tmp_path / "new/inner")) == ["new", "old"]


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
        with pytest.raises(UserError, match="is a device or a pipe"), atomic_write(path):
            pytest.fail("nothing is written")
        with pytest.raises(UserError, match=f"--out {path}: is a device or a pipe"):
            check_output_file("--out", path)
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode) and os.path.exists(os.devnull)


def test_permissions_are_those_of_any_new_file(tmp_path):
    with atomic_write(str(tmp_path / "a")), open(tmp_path / "b", "w"):
        pass
    assert os.stat(tmp_path / "a").st_mode == os.stat(tmp_path / "b").st_mode


def started(path, program):
    """Another process, which runs this and waits."""
    program = f"import sys\nfrom fb_fairseq.files import *\n{program}; sys.stdin.read()"
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    return subprocess.Popen([sys.executable, "-c", program, path], **pipes)


def test_what_a_killed_process_leaves_is_removed(tmp_path):
    path = str(tmp_path / "file")
    with started(path, "with atomic_write(sys.argv[1]) as temporary: print(temporary, flush=True)") as writer:
        theirs = writer.stdout.readline().strip()
        with atomic_write(path):
            assert os.path.exists(theirs), "still being written"
        writer.kill()
    assert os.path.exists(theirs)
    with atomic_write(path):
        assert not os.path.exists(theirs)


@pytest.mark.parametrize("make", [os.symlink, os.link, lambda target, path: os.mkfifo(path)])
def test_a_lock_that_is_something_else(tmp_path, make):
    (tmp_path / "target").write_text("mine")
    (tmp_path / "run").mkdir()
    make(tmp_path / "target", tmp_path / "run" / ".lock")
    with pytest.raises(UserError, match=r"--out: .*\.lock is not a lock file"):
        lock_folder("--out", str(tmp_path / "run"))
    assert (tmp_path / "target").read_text() == "mine"


def test_pipes_and_devices_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        for read in (load_file, lambda path: open_text(path).__enter__()):
            with pytest.raises(UserError, match=f"{path}: is a device or a pipe; give a file"):
                read(path)
    reading, writing = os.pipe()
    os.write(writing, b"text")
    os.close(writing)
    with open_text(f"/dev/fd/{reading}") as file:
        assert file.read() == "text"
    os.close(reading)


def test_one_run_in_a_folder(tmp_path):
    """A second process is refused until the first has ended, however it ends; the same process may ask again."""
    with started(tmp_path / "run", "lock_folder('--out', sys.argv[1]); print('locked', flush=True)") as holder:
        assert holder.stdout.readline() == "locked\n"
        message = rf"--out .*run: another run is writing .*\(process {holder.pid} on "
        with pytest.raises(UserError, match=message) as error:
            lock_folder("--out", str(tmp_path / "run"))
        assert "\n" not in str(error.value)
        holder.kill()
    for _ in range(2):
        lock_folder("--out", str(tmp_path / "run"))
    os.symlink(tmp_path / "run", tmp_path / "link")
    lock_folder("--out", str(tmp_path / "link"))


def test_text_of_another_encoding(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("größer".encode("latin-1"))
    with pytest.raises(UserError, match="text: is not UTF-8 text"), open_text(str(path)) as file:
        file.read()


@pytest.mark.parametrize("module,program", [(gzip, "gunzip"), (bz2, "bunzip2"), (lzma, "unxz"), (zipfile, "unzip")])
def test_compressed_text(tmp_path, module, program):
    """Is refused with its remedy, also where bytes of any kind are read."""
    path = str(tmp_path / "text")
    if module is zipfile:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("text", secrets.token_bytes(999))
    else:
        with module.open(path, "wb") as file:
            file.write(secrets.token_bytes(999))
    message = f"{path}: is compressed; unpack it with {program}, and give the text"
    with pytest.raises(UserError, match=f"^{re.escape(message)}"), open_text(path) as file:
        file.read()
    with pytest.raises(UserError, match=f"^--text {re.escape(message)}"):
        read_files("--text", [path])
