"""Files that appear whole or not at all, and folders whose files appear when all of them are written."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from typing import Iterator


@contextmanager
def atomic_write(path: str) -> Iterator[str]:
    """Write a file atomically: yield a temporary name beside ``path``, and rename it to ``path`` at the end.

    Use::

        with atomic_write("model.pt") as temporary:
            torch.save(checkpoint, temporary)

    Raises:
        OSError: the file cannot be written. What stood at ``path`` before is still there, the temporary file is gone.
    """
    temporary = f"{path}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


@contextmanager
def atomic_folder(path: str) -> Iterator[str]:
    """Write the files of a folder all together: yield a temporary folder in ``path``, and move its files up at the end.

    ``path`` is created if it does not exist.

    Raises:
        OSError: the folder cannot be written to.
    """
    os.makedirs(path, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".incomplete-", dir=path)
    try:
        yield temporary
        for name in os.listdir(temporary):
            os.replace(os.path.join(temporary, name), os.path.join(path, name))
    finally:
        shutil.rmtree(temporary)
