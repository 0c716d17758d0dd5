"""The installed package is found from everywhere, also from the clone's parent folder.

There Python sees the clone, which is itself named fb_fairseq, as a namespace package: ``fb_fairseq.X`` may then be a
folder X that a user has made in the clone.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.conftest import REPOSITORY
from tests.distributions import clone_in, run_python, wheel  # noqa: F401

PACKAGE = REPOSITORY / "fb_fairseq"
# Folders that users, fairseq, hydra and loggers make in the working directory.
RUN_FOLDERS = """
    artifacts cache checkpoint checkpoints ckpt conf config configs corpora corpus data data-bin datasets exp
    experiments figures generated lightning_logs log logs mlruns models multirun notebooks out output outputs plots
    predictions results run runs save saved scripts tb tensorboard temp tmp wandb weights
""".split()
# fairseq itself imports <user dir>/models and <user dir>/tasks.
REQUIRED_BY_FAIRSEQ = {"models", "tasks"}


def module_names():
    """All modules of the package, from its files."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def top_level_names():
    return {name.split(".")[1] for name in module_names() if "." in name}


@pytest.fixture
def parent(tmp_path):
    """A folder with a clone in it, in which a user has made folders for runs."""
    clone = clone_in(tmp_path)
    for name in RUN_FOLDERS:
        (clone / name).mkdir()
    return clone.parent


# Arguments: the package, the folder of its installation, and the names of all modules.
FIND_ALL = """
import importlib.util, os, site, sys

package, path, *names = sys.argv[1:]
# Hide an installation of the package that this environment already has.
sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable___fb_fairseq" not in str(finder)]
sys.path[:] = [entry for entry in sys.path if not os.path.isdir(os.path.join(entry, "fb_fairseq")) or entry == ""]
site.addsitedir(path)

import fb_fairseq

print(getattr(fb_fairseq, "__file__", None))
shadowed = []
for name in names:
    spec = importlib.util.find_spec(name)
    origin = getattr(spec, "origin", None)
    if name != "fb_fairseq" and not (origin and origin.startswith(package + os.sep)):
        shadowed.append(name)
print(*shadowed)
if not shadowed:
    import fb_fairseq.models, fb_fairseq.tasks
"""


def test_names_of_run_folders_are_not_used():
    assert not (top_level_names() - REQUIRED_BY_FAIRSEQ) & set(RUN_FOLDERS)


@pytest.mark.not_fast
def test_editable_installation_is_a_path(parent):
    """``pip install -e`` adds the clone to sys.path: the regular package wins, even over a folder ``models``."""
    pytest.importorskip("setuptools", minversion="70.1")  # builds wheels by itself
    program = "import setuptools.build_meta as backend, sys; backend.build_editable(sys.argv[1])"
    run_python(program, parent / "fb_fairseq", parent)
    (editable,) = parent.glob("*.whl")
    with zipfile.ZipFile(editable) as archive:
        archive.extractall(parent / "site")
    editable_install = parent / "site"
    (pth,) = editable_install.glob("*.pth")
    assert pth.read_text().strip() == str(parent / "fb_fairseq")
    assert not list(editable_install.glob("*.py")), "no import hook"
    (entry_points,) = editable_install.glob("*.dist-info/entry_points.txt")
    assert "fb-fairseq = fb_fairseq.commands:main" in entry_points.read_text()
    package = parent / "fb_fairseq/fb_fairseq"
    for name in top_level_names():
        (parent / "fb_fairseq" / name).mkdir(exist_ok=True)
    found = run_python(FIND_ALL, parent, package, editable_install, *module_names())
    assert found.split() == [str(package / "__init__.py")]


def test_without_transformers():
    program = "import sys; sys.modules['transformers'] = None; import fb_fairseq.transformers"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    line = "ImportError: transformers is not installed; pip install 'fb_fairseq[transformers]'"
    assert done.stderr.splitlines()[-1] == line and "During handling" not in done.stderr


@pytest.mark.slow
def test_quickstart_of_a_wheel(wheel, tmp_path):  # noqa: F811
    """In an empty folder, from the package as a wheel installs it, without anything of the clone."""
    site = tmp_path / "site"
    folder = tmp_path / "folder"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    folder.mkdir()
    (tmp_path / "text").write_bytes(b"A line of text, and another one.\n" * 300)
    command = [sys.executable, "-m", "fb_fairseq", "quickstart", "--text", tmp_path / "text", "--updates", "2"]
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^Test split: [\d.]+ bits per byte", done.stdout, re.MULTILINE)
    assert (folder / "runs/quickstart/quickstart.png").exists()
    log = (folder / "runs/quickstart/checkpoints.log").read_text()
    assert f"'user_dir': '{site}/fb_fairseq'" in log


JUST_THE_PACKAGE = pytest.param(["fb_fairseq"], marks=pytest.mark.slow)
# Arguments: the value of --user-dir, and modules to import first.
USE_PLUGIN = """
import argparse, importlib, sys

for name in sys.argv[2:]:
    importlib.import_module(name)
from fairseq import utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY

for _ in range(2):
    utils.import_user_module(argparse.Namespace(user_dir=sys.argv[1]))
import fb_fairseq

print(fb_fairseq.__file__, "streaming_lm" in TASK_REGISTRY, "feedback_decoder" in ARCH_MODEL_REGISTRY)
"""


@pytest.mark.not_fast
@pytest.mark.parametrize(
    "imported", [pytest.param([], marks=pytest.mark.slow), JUST_THE_PACKAGE, ["fb_fairseq.ops", "fairseq"]], ids=str
)
def test_the_plugin_may_be_imported_before(parent, imported):
    """fairseq imports no tasks and models of a --user-dir that is imported already."""
    package = parent / "fb_fairseq/fb_fairseq"
    program = f"import sys; sys.path.insert(0, {str(parent / 'fb_fairseq')!r})\n{USE_PLUGIN}"
    found = run_python(program, parent, package, *imported).split()[-3:]
    assert found == [str(package / "__init__.py"), "True", "True"]


@pytest.mark.not_fast
@pytest.mark.parametrize("imported", [[], JUST_THE_PACKAGE], ids=str)
def test_an_installed_plugin_is_found_from_any_folder(wheel, tmp_path, imported):  # noqa: F811
    """``--user-dir fb_fairseq`` where pip has installed the package beside fairseq."""
    import fairseq

    site = tmp_path / "site"
    folder = tmp_path / "folder"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    folder.mkdir()
    # A copy, because fairseq looks beside its own folder.
    shutil.copytree(pathlib.Path(fairseq.__file__).parent, site / "fairseq", ignore=shutil.ignore_patterns("examples"))
    program = f"import sys; sys.path.insert(0, {str(site)!r})\n{USE_PLUGIN}"
    found = run_python(program, folder, "fb_fairseq", *imported).split()[-3:]
    assert os.path.realpath(found[0]) == str(site / "fb_fairseq/__init__.py") and found[1:] == ["True", "True"]
