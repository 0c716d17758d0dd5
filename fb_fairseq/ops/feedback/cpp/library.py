"""The compiled step loop, built at first use with the compiler of this machine, and called through ctypes.

The library lies in a folder of the user's own in the cache, to which nobody else can write. Its name depends on the
sources, the compiler, its options and the processor.
"""

import ctypes
import functools
import hashlib
import importlib.util
import logging
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

logger = logging.getLogger(__name__)

SOURCES = Path(__file__).parent / "src"
COMPILERS = ("c++", "g++", "clang++")
# Sums may be contracted to fused multiply-adds, but neither reordered nor assumed to be finite, except where a loop
# asks for it (omp simd).
OPTIONS = (
    "-std=c++17 -O3 -shared -fPIC -ffp-contract=fast -fno-math-errno -fno-trapping-math -fno-signed-zeros -fopenmp-simd"
).split()
PROCESSOR_OPTIONS = ("-march=native", "-mcpu=native", "")  # the first that the compiler accepts
TIMEOUT_SECONDS = 600  # ziglang takes most of a minute on an idle core, the first time


class BuildError(Exception):
    """Raised where there is no C++ loop; the message says why in one line."""


class Built(NamedTuple):
    """A compiled library.

    Attributes:
        path: where it lies.
        compiler: the compiler's name with its options for the processor.
    """

    path: Path
    compiler: str


def cache_folder() -> Path:
    """``FB_FAIRSEQ_CACHE``, or a folder in the user's cache."""
    folder = os.environ.get("FB_FAIRSEQ_CACHE")
    if folder:
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fb_fairseq"


def private_folder() -> Path:
    """The folder of this user's libraries in the cache, created if missing. Nobody else can write to it.

    Raises:
        BuildError: it cannot be created, or others can write to it.
    """
    folder = cache_folder() / f"cpp-{_user()}"
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if found.st_uid != _user() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
            raise BuildError(f"{folder}: others can write there; name another folder with FB_FAIRSEQ_CACHE")
    except OSError as error:
        raise not_writable(folder, error) from None
    return folder


def not_writable(folder: Path, error: OSError) -> BuildError:
    """The error for a folder that cannot be written."""
    return BuildError(f"{folder} cannot be written ({error.strerror}); name another folder with FB_FAIRSEQ_CACHE")


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0  # as Windows gives for owners


def find_compiler() -> list[str]:
    """The program that ``CXX`` names, which may have arguments (``ccache g++``), or the first compiler that is
    installed; if there is none, that of the Python package ziglang.

    Raises:
        BuildError: there is none.
    """
    for name in filter(None, [os.environ.get("CXX", "").strip(), *COMPILERS]):
        program, *arguments = [name] if shutil.which(name) else name.split()
        path = shutil.which(program)
        if path:
            return [path, *arguments]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "c++"]
    raise BuildError("no C++ compiler was found; pip install 'fb_fairseq[compiler]' brings one (or: apt install g++)")


@functools.cache
def processor() -> str:
    """A key that differs between processors that need different code: the architecture and, where known, features."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            features = next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return f"{platform.machine()} {features}"


def sources() -> list[Path]:
    """The source files, in a fixed order."""
    return sorted(SOURCES.iterdir())


def build() -> Built:
    """The library, compiled now if it is not in the cache yet.

    Processes may build at the same time: each renames its own file when it is complete. The environment
    variable ``FB_FAIRSEQ_CXXFLAGS`` has further options for the compiler; a ``-march`` there takes the place of our
    own.

    Raises:
        BuildError: there is no compiler, it fails, or the cache folder cannot be written.
    """
    compiler, extra = find_compiler(), os.environ.get("FB_FAIRSEQ_CXXFLAGS", "")
    version = _run([*compiler, "--version"]).splitlines()[:1]
    digest = hashlib.sha256(repr((compiler, version, OPTIONS, extra, processor())).encode())
    for source in sources():
        digest.update(source.read_bytes())
    stem = private_folder() / f"step_loop-{digest.hexdigest()[:16]}"
    problem: BuildError | None = None
    for option in ("",) if "-march" in extra else PROCESSOR_OPTIONS:
        path = stem.with_name(f"{stem.name}{option.replace('=', '-')}.so")
        options = [*filter(None, [option]), *extra.split()]
        try:
            if not path.exists():
                _compile([*compiler, *OPTIONS, *options], path)
        except BuildError as error:
            problem = problem or error
            continue
        name = ["ziglang", "c++"] if "ziglang" in compiler else [os.path.basename(compiler[0]), *compiler[1:]]
        return Built(path, " ".join([*name, *options]))
    raise problem


def _compile(command: list[str], path: Path) -> None:
    """Compile the library."""
    try:
        scratch = tempfile.TemporaryDirectory(prefix=".building-", dir=path.parent)
    except OSError as error:
        raise not_writable(path.parent, error) from None
    with scratch as folder:
        library = Path(folder) / "loop.so"
        _run([*command, str(SOURCES / "loop.cpp"), "-o", str(library)])
        os.replace(library, path)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} cannot be run ({type(error).__name__})") from None
    if done.returncode:
        lines = done.stderr.splitlines() or ["no message"]
        raise BuildError(f"{command[0]} failed: {next((line for line in lines if 'error' in line), lines[0])}")
    return done.stdout


NUMBER, POINTER = ctypes.c_int64, ctypes.c_void_p


class Library:
    """The compiled functions.

    Attributes:
        path: where they lie.
        compiler: what they were compiled with.
        VL: floats in a vector.
        PANEL: columns in a panel of a packed matrix.
        pack, scratch_size, forward, backward, step: see src/loop.cpp, where their names begin with ``fb_``.
    """

    def __init__(self, path: Path, compiler: str):
        self.path, self.compiler = path, compiler
        library = ctypes.CDLL(str(path))
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
            function.argtypes, function.restype = arguments, NUMBER  # (void functions' values are not used)
            setattr(self, name[len("fb_") :], function)
        self.VL, self.PANEL = self.vector_length(), self.panel()

    def packed_size(self, inner: int, columns: int) -> int:
        """Floats of a packed matrix [inner, columns]."""
        return -(-columns // self.PANEL) * self.PANEL * inner


def pointer(x: Tensor | None) -> int | None:
    """The address of a contiguous tensor; None (a null pointer) without a tensor."""
    if x is None:
        return None
    assert x.is_contiguous(), "the C++ loop works on contiguous tensors"
    return x.data_ptr()


class Loaded(NamedTuple):
    """The library, or why there is none."""

    library: Library | None
    problem: str | None = None


@functools.cache
def load() -> Loaded:
    """The library, compiled at the first call; one line in the log says what came of it."""
    try:
        library = Library(*build())
    except (BuildError, OSError, RuntimeError) as error:  # (RuntimeError: of Path.home, without a home)
        logger.info(f"step loop: the C++ loop is not available, the reference runs: {error}")
        return Loaded(None, str(error))
    logger.info(f"step loop: cpp, vectors of {library.VL} floats ({library.compiler}, {library.path})")
    return Loaded(library)
