"""The functions of the compiled step loop, by ctypes."""

import ctypes
import functools
import logging
from pathlib import Path
from typing import NamedTuple, Optional

from torch import Tensor

from fb_fairseq.ops.feedback.cpp.build import BuildError, build

logger = logging.getLogger(__name__)

NUMBER, POINTER = ctypes.c_int64, ctypes.c_void_p


class Library:
    """The compiled functions.

    Attributes:
        path: where they lie.
        compiler: what they were compiled with.
        VL: floats in a vector.
        PANEL: columns in a panel of a packed matrix.

    Raises:
        BuildError: it is another library.
    """

    def __init__(self, path: Path, compiler: str):
        self.path, self.compiler = path, compiler
        library = ctypes.CDLL(str(path))
        if not hasattr(library, "fb_step"):
            raise BuildError(f"{path} is another library; remove it")
        for name, arguments in {
            "fb_vector_length": [],
            "fb_panel": [],
            "fb_scratch_size": [POINTER],
            "fb_pack": [POINTER, NUMBER, NUMBER, NUMBER, NUMBER, POINTER],
            "fb_forward": [POINTER, *[NUMBER] * 5],
            "fb_backward": [POINTER, POINTER, NUMBER, NUMBER],
            "fb_step": [POINTER, POINTER, NUMBER, NUMBER],
        }.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, NUMBER  # of those that return something
            setattr(self, name[len("fb_") :], function)
        self.VL, self.PANEL = self.vector_length(), self.panel()

    def packed_size(self, inner: int, columns: int) -> int:
        """Floats of a packed matrix [inner, columns]."""
        return -(-columns // self.PANEL) * self.PANEL * inner


def pointer(x: Optional[Tensor]) -> Optional[int]:
    """Where a contiguous tensor lies; None (a null pointer) without a tensor."""
    if x is None:
        return None
    assert x.is_contiguous(), "the C++ loop works on contiguous tensors"
    return x.data_ptr()


def open_library() -> Library:
    """The library, compiled if need be.

    Raises:
        BuildError: see ``fb_fairseq.ops.feedback.cpp.build.build`` and ``Library``.
        OSError: it cannot be loaded.
    """
    built = build()
    return Library(built.path, built.compiler)


class Loaded(NamedTuple):
    """The library, or why there is none."""

    library: Optional[Library]
    problem: Optional[str] = None


@functools.lru_cache(maxsize=None)
def load() -> Loaded:
    """The library, compiled at the first call; one line in the log says what came of it."""
    try:
        library = open_library()
    except (BuildError, OSError) as error:
        logger.info(f"step loop: the C++ loop is not available, the torch loop runs: {error}")
        return Loaded(None, str(error))
    logger.info(f"step loop: cpp, vectors of {library.VL} floats ({library.compiler}, {library.path})")
    return Loaded(library)
