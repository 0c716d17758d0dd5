"""The C++ loop is built once, in a cache folder; without a compiler or a folder the reference runs."""

import concurrent.futures
import os
import pathlib
import shutil
import stat
import subprocess

import pytest

from fb_fairseq.ops.feedback.cpp import library
from fb_fairseq.ops.feedback.cpp.library import BuildError, build, find_compiler
from tests.conftest import REPOSITORY
from tests.ops.own_process import run_tests

pytestmark = pytest.mark.not_fast

try:
    find_compiler()
except BuildError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FB_FAIRSEQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FB_FAIRSEQ_CXXFLAGS", "-O0")  # compiled in a third of the time
    library.load.cache_clear()
    yield tmp_path / "cache"
    library.load.cache_clear()


def test_built_once_also_by_many_at_once(cache):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: build().path, range(2)))
    assert paths[0] == paths[1] and os.listdir(paths[0].parent) == [paths[0].name]
    before = paths[0].stat().st_mtime_ns
    assert build().path == paths[0] and paths[0].stat().st_mtime_ns == before


def test_a_library_that_could_be_anothers_is_not_loaded(cache, monkeypatch):
    folder = library.private_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    with pytest.raises(BuildError, match="others can write there; name another folder with FB_FAIRSEQ_CACHE"):
        build()
    folder.chmod(0o700)
    monkeypatch.setattr(library, "_user", lambda: os.geteuid() + 1)  # the folder is made, but by another user
    with pytest.raises(BuildError, match="others can write there"):
        build()


def test_other_sources_are_another_library(cache, tmp_path, monkeypatch):
    path = build().path
    sources = tmp_path / "src"
    sources.mkdir()
    for source in library.sources():
        (sources / source.name).write_bytes(source.read_bytes() + b"\n// changed\n")
    monkeypatch.setattr(library, "SOURCES", sources)
    assert build().path != path


@pytest.mark.parametrize(
    "variables,message",
    [
        ({"PATH": "{cache}", "CXX": ""}, "no C++ compiler was found; pip install 'fb_fairseq[compiler]' brings one"),
        ({"CXX": "{compiler}"}, "failed: loop.cpp:1: error: no"),
        ({"FB_FAIRSEQ_CACHE": "{compiler}"}, "FB_FAIRSEQ_CACHE"),
    ],
    ids=["no compiler", "one that fails", "a file as the folder"],
)
def test_what_cannot_be_built_is_logged_once(cache, tmp_path, monkeypatch, caplog, variables, message):
    compiler = tmp_path / "c++"
    error = "printf 'loop.cpp:1: error: no \\377\\n'"  # in another encoding than UTF-8
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\n{error} >&2\nexit 1\n')
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(cache=cache, compiler=compiler))
    caplog.set_level("INFO")
    assert library.load().library is None and library.load().library is None
    (line,) = caplog.messages
    assert message in line and not [path for path in cache.rglob("*") if path.is_file()]


def test_a_compiler_with_arguments(cache, monkeypatch):
    """As in ``ccache g++``; with others, another library is built."""
    (compiler,) = find_compiler()
    for more in ([], ["-DOTHER"]):
        monkeypatch.setenv("CXX", " ".join(["env", compiler, *more]))
        assert find_compiler()[1:] == [compiler, *more]
        library.build()
    assert len(list(cache.rglob("*.so"))) == 2


def test_without_a_compiler_that_of_the_package_ziglang(cache, tmp_path, monkeypatch, caplog):
    """A package of this name whose compiler is the system's stands for it."""
    (compiler,) = find_compiler()
    package = tmp_path / "packages" / "ziglang"
    package.mkdir(parents=True)
    lines = f"import os, sys\nassert sys.argv[1] == 'c++'\nos.execv({compiler!r}, [{compiler!r}, *sys.argv[2:]])\n"
    (package / "__main__.py").write_text(lines)
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(library, "COMPILERS", ())
    caplog.set_level("INFO")
    assert library.load().library.compiler.startswith("ziglang c++")
    (line,) = caplog.messages
    assert "step loop: cpp" in line and "ziglang c++" in line


TESTS = [pathlib.Path(__file__).with_name("test_loop.py"), REPOSITORY / "tests/modules/test_cpp_steps.py"]


def run_compiled(**environment):
    """The tests of blocks and of decoding steps, with the loop compiled for these environment variables."""
    assert "skipped" not in run_tests(*TESTS, options=["--fast"], **environment)


@pytest.mark.slow
def test_no_access_out_of_bounds_and_nothing_undefined(tmp_path):
    """Built with AddressSanitizer and UndefinedBehaviorSanitizer."""
    # (The sanitizer finds how exceptions are thrown at its start only, before Python has loaded the C++ library.)
    libraries = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    if not all(map(os.path.isabs, libraries)):
        pytest.skip("AddressSanitizer is not installed")
    run_compiled(
        LD_PRELOAD=" ".join(libraries),
        ASAN_OPTIONS="detect_leaks=0",  # Python's own
        FB_FAIRSEQ_CACHE=str(tmp_path),
        FB_FAIRSEQ_CXXFLAGS="-g -fsanitize=address,undefined -fno-sanitize-recover=undefined",
    )


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-march=x86-64-v3", "-march=x86-64-v2"])
def test_other_processors(tmp_path, option):
    """Built for processors with narrower vectors."""
    if os.uname().machine != "x86_64":
        pytest.skip("an option of x86-64")
    run_compiled(FB_FAIRSEQ_CACHE=str(tmp_path), FB_FAIRSEQ_CXXFLAGS=option)


@pytest.mark.slow
def test_clang(tmp_path):
    if shutil.which("clang++") is None:
        pytest.skip("clang++ is not installed")
    run_compiled(FB_FAIRSEQ_CACHE=str(tmp_path), CXX="clang++")


@pytest.mark.slow
def test_compiles_for_arm(tmp_path):
    compiler = shutil.which("aarch64-linux-gnu-g++")
    if compiler is None:
        pytest.skip("aarch64-linux-gnu-g++ is not installed")
    command = [compiler, *library.OPTIONS, str(library.SOURCES / "loop.cpp"), "-o", str(tmp_path / "loop.so")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
