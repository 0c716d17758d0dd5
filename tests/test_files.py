"""Files and folders appear whole or not at all."""

import os

import pytest

from fb_fairseq.files import atomic_folder, atomic_write


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
