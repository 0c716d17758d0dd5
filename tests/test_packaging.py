"""What distributions hold and require, and what PyPI would show of them."""

import ast
import email
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

import fb_fairseq
from fb_fairseq.packages import EXTRAS, FAIRSEQ_VERSIONS
from tests.conftest import REPOSITORY
from tests.distributions import NEEDED, build, clone_in, wheel  # noqa: F401

PACKAGE = REPOSITORY / "fb_fairseq"
FOLDERS = ("docs", "examples", "fb_fairseq", "tests")
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "MANIFEST.in")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """A source distribution."""
    pytest.importorskip("setuptools", minversion="70.1")
    folder = tmp_path_factory.mktemp("sdist")
    return build("sdist", clone_in(folder, (*NEEDED, *PAGES), FOLDERS), folder)


@pytest.fixture(scope="module")
def unpacked(sdist, tmp_path_factory):
    """The folder in it."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    (inside,) = folder.iterdir()
    return inside


@pytest.mark.not_fast
def test_an_sdist_has_tests_and_pages(unpacked):
    """All files of the clone, but for those of the repository's host."""
    files = {path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*") if path.is_file()}
    names = {path.relative_to(REPOSITORY) for path in files if "__pycache__" not in path.parts}
    assert {pathlib.Path("tests/run.sh"), pathlib.Path("examples/environment.sh")} < names
    missing = [name for name in (*names, *NEEDED, *PAGES) if not (unpacked / name).is_file()]
    assert missing == []


@pytest.mark.not_fast
def test_twine_check(wheel, sdist):  # noqa: F811
    """PyPI can show the description."""
    pytest.importorskip("twine")
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr


@pytest.mark.not_fast
def test_all_files_are_installed(wheel):  # noqa: F811
    """Modules of all folders, the sources of the C++ loop, data, trained models, and the mark of type hints."""
    files = {path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*") if path.is_file()}
    files = {path.as_posix() for path in files if "__pycache__" not in path.parts}
    assert "fb_fairseq/py.typed" in files
    with zipfile.ZipFile(wheel) as archive:
        assert files <= set(archive.namelist())
    assert wheel.stat().st_size < 5e6


def packaging(version=sys.version_info, repository=REPOSITORY):
    """What setup.py passes to ``setup`` on a version of Python."""
    given = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "version_info", version)
        patch.setattr("setuptools.setup", given.update)
        path = repository / "setup.py"
        exec(path.read_text(encoding="utf-8"), {"__file__": str(path)})
    return given


LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def test_what_pypi_shows(tmp_path):
    """The README, with absolute links and figures once the repository is public; until then without those."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    files = {target for target in LINK.findall(readme) if "://" not in target}
    url = "https://example.org/somebody/fb_fairseq"
    clone = clone_in(tmp_path, folders=())
    citation = re.sub("^repository-code:.*\n", "", (clone / "CITATION.cff").read_text(), flags=re.MULTILINE)
    for code in ("", f"repository-code: {url}\n", f'repository-code: "{url}"\n'):
        (clone / "CITATION.cff").write_text(citation + code)
        given = packaging(repository=clone)
        text = given["long_description"]
        assert CODE.findall(text) == CODE.findall(readme)
        links = set(LINK.findall(text))
        assert all(link.startswith("https://") for link in links)
        assert ("Source" in given["project_urls"]) == bool(code)
        if code:
            kinds = {file: "raw" if file.endswith((".png", ".gif")) else "blob" for file in files}
            assert links >= {f"{url}/{kind}/HEAD/{file}" for file, kind in kinds.items()}
            assert given["project_urls"]["Changelog"] == f"{url}/blob/HEAD/CHANGELOG.md"
        else:
            assert "![" not in text and "state tracking" in text


@pytest.mark.not_fast
def test_metadata(wheel):  # noqa: F811
    """One version everywhere, and what it takes to be found on PyPI."""
    assert wheel.name in (REPOSITORY / "docs/faq.md").read_text(encoding="utf-8")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    assert metadata["Version"] == fb_fairseq.__version__ == re.search("^version: (.*)", citation, re.MULTILINE)[1]
    assert metadata["Author"] in citation and metadata["License"] == "MIT" and metadata["License-File"] == "LICENSE"
    assert metadata["Keywords"] and len(metadata.get_all("Project-URL")) >= 2
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(metadata.get_all("Classifier")))
    assert [tuple(map(int, version.split("."))) for version in versions] == list(FAIRSEQ_VERSIONS)


def test_python_3_9_is_refused_at_once():
    """Before pip downloads torch."""
    with pytest.raises(SystemExit, match="fb_fairseq does not run on Python 3.9; use Python 3.10 or 3.12"):
        packaging((3, 9))


@pytest.mark.parametrize("command", [["-m", "fb_fairseq", "train"], ["-c", "import fb_fairseq.modules"]])
def test_python_3_9_is_refused_without_pip(command, tmp_path):
    """In the same sentence, by a file that old versions can read."""
    ast.parse((REPOSITORY / "fb_fairseq/__init__.py").read_text(encoding="utf-8"), feature_version=(3, 6))
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.version_info = (3, 9, 1)")
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY)])
    pipes = dict(capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": path})
    done = subprocess.run([sys.executable, *command], **pipes)
    assert done.returncode and done.stderr == "fb_fairseq does not run on Python 3.9; use Python 3.10 or 3.12\n"


@pytest.mark.parametrize(
    "version,package",
    [("3.10", "fairseq"), ("3.12", "fairseq-fixed"), *((f"3.{minor}", None) for minor in (11, 13, 14))],
)
def test_fairseq_is_required_where_it_runs(version, package):
    """Elsewhere the package installs without it; ``errors.py`` knows where."""
    requirements = pytest.importorskip("packaging.requirements")
    pair = tuple(map(int, version.split(".")))
    required = [
        requirement.name
        for requirement in map(requirements.Requirement, packaging(pair)["install_requires"])
        if not requirement.marker or requirement.marker.evaluate({"python_version": version})
    ]
    assert required == [*([package] if package else []), "torch", "numpy", "safetensors"]
    assert (pair in FAIRSEQ_VERSIONS) == (package is not None)


def test_missing_packages_name_an_extra():
    extras = packaging((3, 10))["extras_require"]
    modules = {"PIL": "pillow", "subword_nmt": "subword-nmt", "rouge_score": "rouge-score"}
    for module, extra in EXTRAS.items():
        assert any(requirement.startswith(modules.get(module, module)) for requirement in extras[extra]), module
