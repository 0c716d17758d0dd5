"""Folders get all their files or none, keep what the same command has not written, and are of one run at a time."""

import os
import shutil
import subprocess
import sys

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.folders import lock_folder, own_folder, start_run
from tests.conftest import REPOSITORY

OLD = {"a": "old1", "inner/b": "old2"}
NEW = {"a": "new1", "inner/b": "new2"}
# A process that locks its arguments, in their order, and waits.
LOCK = """import sys
from fb_fairseq.folders import lock_folder
for path in sys.argv[1:]:
    lock_folder("--out", path)
print("locked", flush=True)
sys.stdin.read()
"""


def write(path, files, command="writer", overwrite=False, made_from=""):
    """Write a folder's files, texts by name, as a command does."""
    with own_folder("--out", str(path), command, overwrite, made_from=made_from) as folder:
        for name, text in files.items():
            file = os.path.join(folder, name)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "w") as opened:
                opened.write(text)


def content(path):
    """The texts of all files in a folder, by name; without marks."""
    found = [file for file in path.rglob("*") if file.is_file() and not file.name.startswith(".fb_fairseq-")]
    return {str(file.relative_to(path)): file.read_text() for file in found}


def refused(path, message, files, **options):
    """To ``write`` is refused, and changes nothing."""
    before = content(path)
    with pytest.raises(UserError, match=message) as error:
        write(path, files, **options)
    assert "\n" not in str(error.value) and content(path) == before


def test_a_folder_gets_all_files_or_none(tmp_path):
    (tmp_path / "old").mkdir()
    with pytest.raises(ValueError), own_folder("--out", str(tmp_path / "old"), "writer") as temporary:
        (tmp_path / "old" / os.path.basename(temporary) / "a").write_text("new")
        raise ValueError
    assert os.listdir(tmp_path / "old") == []
    with own_folder("--out", str(tmp_path / "new"), "writer") as temporary:
        for name in "ab":
            with open(os.path.join(temporary, name), "w") as file:
                file.write(name)
        assert [name for name in os.listdir(tmp_path / "new") if not name.startswith(".")] == []
    assert sorted(os.listdir(tmp_path / "new")) == [".fb_fairseq-writer", "a", "b"]


def test_a_command_replaces_its_own_folder(tmp_path):
    kept = {".hidden": "mine", "walk/bin": "of a folder that the command does not write to"}
    (tmp_path / ".hidden").write_text(kept[".hidden"])
    write(tmp_path, OLD)
    (tmp_path / "walk").mkdir()
    (tmp_path / "walk/bin").write_text(kept["walk/bin"])
    write(tmp_path, NEW)
    assert content(tmp_path) == {**kept, **NEW}


def test_what_this_command_does_not_write_stays(tmp_path):
    """In a folder without its mark, or with that of another; and files of its own that it does not write again."""
    (tmp_path / "a").write_text("mine")
    refused(tmp_path, f"--out {tmp_path}: has files that this command has not written; give a new or empty", {"b": "1"})
    out = tmp_path / "out"
    write(out, OLD)
    refused(out, "has files that this command has not written", NEW, command="other")
    refused(out, "/out/a: this command has not written it, or it was changed since", {"c": "1"})


@pytest.mark.parametrize("name", ["a", "inner/b", "inner/mine", "mine"])
def test_what_others_have_put_into_its_folder_stays(tmp_path, name):
    """Told to, the command replaces it if it is one of the files that it writes."""
    write(tmp_path / "out", OLD)
    other = tmp_path / "other"
    other.write_text("mine")  # as long as the texts of the command
    os.utime(other, (1, 1))
    os.replace(other, tmp_path / "out" / name)  # keeps its time
    refused(tmp_path / "out", f"/out/{name}: this command has not written it, or it was changed since", NEW)
    write(tmp_path / "out", NEW, overwrite=True)
    assert content(tmp_path / "out") == {name: "mine", **NEW}


def test_its_own_files_stay_if_they_were_edited_copied_or_moved(tmp_path):
    write(tmp_path / "out", OLD)
    written = (tmp_path / "out/a").stat()
    (tmp_path / "out/a").write_text("edited")
    os.utime(tmp_path / "out/a", ns=(written.st_atime_ns, written.st_mtime_ns))  # within a tick of the clock
    for copy in (shutil.copytree(tmp_path / "out", tmp_path / "copy"), tmp_path / "out"):
        refused(copy, "/a: this command has not written it, or it was changed since", NEW)
    shutil.move(tmp_path / "out/inner", tmp_path / "theirs")
    (tmp_path / "out/inner").symlink_to(tmp_path / "theirs")
    refused(tmp_path / "out", "/out/inner: this command has not written it", NEW)


def test_what_was_made_from_something_else_stays(tmp_path):
    write(tmp_path, OLD, made_from="one text")
    for _ in range(2):
        refused(tmp_path, f"--out {tmp_path}: has what this command has made from other data", NEW, made_from="two")
        write(tmp_path, OLD, made_from="one text")
    write(tmp_path, NEW, made_from="two", overwrite=True)
    write(tmp_path, NEW, made_from="two")


def test_a_folder_where_a_file_has_to_be_or_a_file_where_a_folder(tmp_path):
    path = tmp_path / "out"
    write(path, {"a": "old"})
    (path / "b").mkdir()
    refused(path, "--out .*/b: is a folder, where a file has to be", {"a": "new", "b": "new"}, overwrite=True)
    refused(path, "/out/a is a file; give the name of a folder", {"a/deep": "new"}, overwrite=True)


def test_runs_write_to_folders_of_their_own(tmp_path):
    """New, empty, with the mark, or known by their checkpoint; not with the lock or mark of another command."""
    for command in ("one", "other"):
        start_run("--out", str(tmp_path / command), command, known=False)
        (tmp_path / command / "checkpoint.pt").write_text("1")
        (tmp_path / command / "mine").write_text("1")
        start_run("--out", str(tmp_path / command), command, known=False)
    with pytest.raises(UserError, match="one: has files that this command has not written; give an empty folder"):
        start_run("--out", str(tmp_path / "one"), "other", known=False)
    start_run("--out", str(tmp_path / "one"), "other", known=True)
    assert sorted(content(tmp_path / "one")) == [".lock", "checkpoint.pt", "mine"]


def test_one_run_in_a_folder(tmp_path):
    """Another process is refused until the first has ended, however it ends. The first may ask again, by another name
    too; it keeps the lock, a file to which nothing is written.
    """
    run = tmp_path / "run"
    link = tmp_path / "link"
    link.symlink_to(run)
    command = [sys.executable, "-c", LOCK, run, run, link]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as first:
        assert first.stdout.readline() == "locked\n"
        with pytest.raises(UserError, match="--out .*run: another run is writing to this folder; wait until it ends"):
            lock_folder("--out", str(run))
        first.kill()
    (run / ".lock").write_text("mine")
    lock_folder("--out", str(run))
    assert (run / ".lock").read_text() == "mine"


def test_systems_without_locks(tmp_path, monkeypatch):
    """Windows: nothing is locked, and the folder is there."""
    monkeypatch.setattr("fb_fairseq.folders.fcntl", None)
    lock_folder("--out", str(tmp_path / "run"))
    assert list((tmp_path / "run").iterdir()) == []
