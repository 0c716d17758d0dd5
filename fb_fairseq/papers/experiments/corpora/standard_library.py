"""Binarise the source code of the Python standard library as bytes: ``standard_library DESTDIR``. Each of its modules
that is one file, not a package, is a document. Of every 20 modules, one is for validation and one for testing.
"""

import pathlib
import sys
import sysconfig

from fb_fairseq.commands import preprocess_bytes


def options(folder: pathlib.Path) -> list[str]:
    """The options of ``preprocess-bytes`` for the modules in a folder."""
    splits = {"train": [], "valid": [], "test": []}
    modules = [path for path in sorted(folder.glob("*.py")) if path.stat().st_size]
    for i, path in enumerate(modules):
        splits[{18: "valid", 19: "test"}.get(i % 20, "train")].append(str(path))
    return [word for split, paths in splits.items() for word in (f"--{split}pref", *paths)]


if __name__ == "__main__":
    modules = pathlib.Path(sysconfig.get_paths()["stdlib"])
    preprocess_bytes.main([*options(modules), "--destdir", sys.argv[1], "--overwrite"])  # beside other files
