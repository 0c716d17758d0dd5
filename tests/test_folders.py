"""Folders get all their files or none, keep what the same command has not written, and are of one run at a time."""

import os
import shutil
import subprocess
import sys

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.folders import lock_folder, own_folder, start_run
from tests.conftest import REPOSITORY
from tests.surroundings import next_tick


def write(path, command="writer", overwrite=False, made_from="", **files):
    """Write a folder's files as a command does; in names, _ stands for /."""
    with own_folder("--out", str(path), command, overwrite, made_from=made_from) as folder:
        for name, text in files.items():
            file = os.path.join(folder, name.replace("_", "/"))
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "w") as opened:
                opened.write(text)


def content(path):
    """The texts of all files in a folder, by name; without marks."""
    found = [file for file in path.rglob("*") if file.is_file() and not file.name.startswith(".fb_fairseq-")]
    return {str(file.relative_to(path)): file.read_text() for file in found}


def refused(path, message, **arguments):
    """A folder's writer is refused, and changes nothing."""
    before = content(path)
    with pytest.raises(UserError, match=message) as error:
        write(path, **arguments)
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
    (tmp_path / ".hidden").write_text("mine")
    write(tmp_path, a="1", inner_b="2")
    (tmp_path / "walk").mkdir()
    (tmp_path / "walk/bin").write_text("of a folder that the command does not write to")
    write(tmp_path, a="3", inner_b="4")
    kept = {".hidden": "mine", "walk/bin": "of a folder that the command does not write to"}
    assert content(tmp_path) == {**kept, "a": "3", "inner/b": "4"}


def test_what_others_have_written_stays(tmp_path):
    """Files without this command's mark; files of other names; and its own, if they were replaced since. Told to, it
    replaces those of its own names, and touches nothing else."""
    (tmp_path / "a").write_text("mine")
    refused(tmp_path, f"--out {tmp_path}: has files that this command has not written; give a new or empty", b="1")
    write(tmp_path / "out", a="1", inner_b="2")
    refused(tmp_path / "out", "has files that this command has not written", command="other", a="1", inner_b="2")
    refused(tmp_path / "out", "/out/a: this command has not written it, or it was changed since", c="1")
    older = tmp_path / "older"
    for name in ("a", "inner/b", "inner/mine", "mine"):
        file = tmp_path / "out" / name
        before = file.read_text() if file.exists() else None
        next_tick()
        older.write_text("mine")
        os.utime(older, (1, 1))
        os.replace(older, file)  # keeps its time
        refused(tmp_path / "out", f"/out/{name}: this command has not written it, or it was cha", a="3", inner_b="4")
        write(tmp_path / "out", overwrite=True, a="3", inner_b="4")
        assert content(tmp_path / "out") == {"a": "3", "inner/b": "4", **({} if before else {name: "mine"})}
        if before is None:
            file.unlink()


def test_its_own_files_stay_if_they_were_edited_copied_or_moved(tmp_path):
    write(tmp_path / "out", a="1", inner_b="2")
    (tmp_path / "out/a").write_text("edited")
    for copy in (shutil.copytree(tmp_path / "out", tmp_path / "copy"), tmp_path / "out"):
        refused(copy, "/a: this command has not written it, or it was changed since", a="3", inner_b="4")
    shutil.move(tmp_path / "out/inner", tmp_path / "theirs")
    (tmp_path / "out/inner").symlink_to(tmp_path / "theirs")
    refused(tmp_path / "out", "/out/inner: this command has not written it", a="3", inner_b="4")


def test_what_was_made_from_something_else_stays(tmp_path):
    write(tmp_path, made_from="one text", a="1")
    for _ in range(2):
        refused(tmp_path, f"--out {tmp_path}: has what this command has made from other data", made_from="two", a="2")
        write(tmp_path, made_from="one text", a="1")
    write(tmp_path, made_from="two", overwrite=True, a="2")
    write(tmp_path, made_from="two", a="2")


def test_a_folder_where_a_file_has_to_be_or_a_file_where_a_folder(tmp_path):
    path = tmp_path / "out"
    write(path, a="old", b="old")
    (path / "b").unlink()
    (path / "b").mkdir()
    refused(path, "--out .*/b: is a folder, where a file has to be", a="new", b="new", overwrite=True)
    (path / "b").rmdir()
    write(path, a="new", b="new", overwrite=True)
    assert content(path) == {"a": "new", "b": "new"}
    refused(path, "/out/b is a file; give the name of a folder", a="newer", b_deep_c="1", overwrite=True)


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


def started(path, program):
    """Another process, which runs this and waits."""
    program = (
        f"import sys\nfrom fb_fairseq.files import *\nfrom fb_fairseq.folders import *\n{program}; sys.stdin.read()"
    )
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    return subprocess.Popen([sys.executable, "-c", program, path], **pipes)


def test_one_run_in_a_folder(tmp_path):
    """A second process is refused until the first has ended, however it ends; the same process may ask again."""
    with started(tmp_path / "run", "lock_folder('--out', sys.argv[1]); print('locked', flush=True)") as holder:
        assert holder.stdout.readline() == "locked\n"
        message = "--out .*run: another run is writing to this folder; wait until it ends"
        with pytest.raises(UserError, match=message) as error:
            lock_folder("--out", str(tmp_path / "run"))
        assert "\n" not in str(error.value)
        holder.kill()
    (tmp_path / "run/.lock").write_text("mine")  # a lock is not written to
    for _ in range(2):
        lock_folder("--out", str(tmp_path / "run"))
    assert (tmp_path / "run/.lock").read_text() == "mine"
    os.symlink(tmp_path / "run", tmp_path / "link")
    lock_folder("--out", str(tmp_path / "link"))
