"""The structure of the package: which room may import which, and what must run without fairseq."""

import ast
import functools
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.conftest import LONGEST, ON_CI, REPOSITORY

# A room is a folder or a file directly in fb_fairseq/, or one of SUBFOLDERS, and holds all modules that are in no other
# room. It may import itself and the rooms listed here. Lowest first.
PAPERS = "fb_fairseq.papers"
OF_PAPERS = (
    "benchmark compare experiments figures import_original results rl state_tracking steps toy_tasks values"
).split()
SUBFOLDERS = ("streams.fairseq", *(f"papers.{name}" for name in OF_PAPERS))
# These may import each other, and no fairseq.
BASE = set(
    "byte_codec checksums command_line drawing errors facts files folders hardware interruption literals meaning "
    "packages printing symbols tensor_files trained_model".split()
)
MATHEMATICS = {"modules", "ops"}
MAY_IMPORT = {
    "packages": set(),
    "printing": set(),
    "errors": {"packages"},
    "files": {"errors"},
    "folders": {"errors", "files"},
    "hardware": set(),
    "facts": {"files", "tensor_files"},
    "checksums": {"errors", "facts", "files"},
    "byte_codec": {"errors"},
    "drawing": {"errors", "files"},
    "literals": {"errors"},
    "interruption": set(),
    "meaning": {"errors"},
    "symbols": set(),
    "command_line": {"errors", "interruption"},
    "tensor_files": {"errors", "files", "meaning"},
    "trained_model": {"errors"},
    "ops": set(),
    "modules": {"command_line", "errors", "ops"},
    "streams": BASE | MATHEMATICS,
    "streams.fairseq": BASE | MATHEMATICS | {"streams"},
    "patches": BASE - {"byte_codec", "drawing"} | {"streams"},
    "criterions": BASE | MATHEMATICS | {"streams"},
    "optim": BASE | MATHEMATICS | {"streams"},
    "models": BASE | MATHEMATICS | {"optim", "patches", "streams"},
    # (models find the task of a checkpoint through fairseq's registry, as --user-dir does: from_pretrained.)
    "tasks": BASE | MATHEMATICS | {"criterions", "patches", "streams", "streams.fairseq"},
    "commands": BASE
    | MATHEMATICS
    | {"criterions", "models", "optim", "patches", "pretrained", "streams", "streams.fairseq", "tasks", "transformers"},
    "transformers": BASE | MATHEMATICS | {"streams"},
    "pretrained": BASE | MATHEMATICS,
    "papers": set(),
    "papers.values": set(),
    "papers.toy_tasks": BASE,
    "papers.experiments": BASE | {"commands"},  # commands: what binarises text
    "papers.results": BASE,
    "papers.figures": BASE | {"commands", "papers.results", "papers.toy_tasks"},  # commands: what reads logs
    "papers.steps": BASE | {"papers.experiments", "papers.results", "papers.toy_tasks"},
    "papers.rl": BASE | MATHEMATICS,
    "papers.state_tracking": BASE | MATHEMATICS | {"commands", "papers.toy_tasks", "pretrained", "transformers"},
    "papers.benchmark": BASE
    | MATHEMATICS
    | {"models", "patches", "papers.rl", "papers.state_tracking", "papers.values"},
    "papers.compare": BASE | {"papers.results", "papers.values"},
    "papers.import_original": BASE | MATHEMATICS | {"commands", "models", "patches"},
    "__main__": {"commands"},
    "__init__": set(),
}
WITHOUT_FAIRSEQ = (
    *sorted(BASE),
    "ops",
    "modules",
    "pretrained",
    "streams",
    "transformers",
    "papers.compare",
    "papers.results",
    "papers.rl",
    "papers.state_tracking",
    "papers.steps",
    "papers.toy_tasks",
)
FAIRSEQ = {"fairseq", "fairseq_cli", "hydra", "omegaconf"}


class Module(NamedTuple):
    """A source file of the package, parsed."""

    name: str
    tree: ast.Module
    is_package: bool

    @property
    def room(self) -> str:
        """The room that it belongs to."""
        parts = self.name.split(".")[1:] or ["__init__"]
        subfolder = ".".join(parts[:2])
        return subfolder if subfolder in SUBFOLDERS else parts[0]


@functools.cache
def package() -> dict[str, Module]:
    """All modules of fb_fairseq by name."""
    found = {}
    for path in sorted((REPOSITORY / "fb_fairseq").rglob("*.py")):
        is_package = path.name == "__init__.py"
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Module(name, ast.parse(path.read_text(encoding="utf-8")), is_package)
    return found


def imported_names(module: Module) -> Iterator[tuple[str, int]]:
    """The modules that a module imports, at its top or inside functions, each with its line."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                folder = module.name.split(".")
                folder = folder[: len(folder) - node.level + module.is_package]
                base = ".".join(folder + [base] if base else folder)
            for alias in node.names:  # of a package, a submodule or something that its __init__ defines
                name = f"{base}.{alias.name}"
                yield (name if name in package() else base), node.lineno


def imports_between_rooms(room: str) -> Iterator[tuple[str, str]]:
    """The imports of other rooms in a room: a description of where, and the imported room."""
    for module in package().values():
        for name, line in imported_names(module) if module.room == room else ():
            if name in package() and package()[name].room not in (room, "__init__"):
                yield f"{module.name}:{line} imports {name}", package()[name].room


def test_every_room_has_a_place_in_the_order():
    rooms = {module.room for module in package().values()}
    assert rooms <= MAY_IMPORT.keys(), "say in MAY_IMPORT which rooms the new one may import"


def test_the_order_has_no_circle():
    graphlib.TopologicalSorter(MAY_IMPORT).prepare()  # raises an error that names it


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_arrows_point_down(room):
    wrong = [where for where, imported in imports_between_rooms(room) if imported not in MAY_IMPORT[room]]
    assert not wrong, "\n".join(wrong)


def test_papers_stay_apart():
    """Nothing else imports them: the lists of commands name its modules as strings, and import what runs."""
    wrong = [
        f"{module.name}:{line} imports {name}"
        for module in package().values()
        if not f"{module.name}.".startswith(f"{PAPERS}.")
        for name, line in imported_names(module)
        if f"{name}.".startswith(f"{PAPERS}.")
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_through_others():
    edges = {name: {target for target, _ in imported_names(module)} for name, module in package().items()}
    graphlib.TopologicalSorter({name: found - {name} for name, found in edges.items()}).prepare()


@pytest.mark.parametrize("room", WITHOUT_FAIRSEQ)
def test_no_import_of_fairseq(room):
    for module in package().values():
        for name, line in imported_names(module) if module.room == room else ():
            assert name.split(".")[0] not in FAIRSEQ, f"{module.name}:{line} imports {name}"


@pytest.mark.parametrize("room", sorted(MATHEMATICS))
def test_mathematics_needs_torch_alone(room):
    """Nothing but the standard library, torch, and where kernels are Triton, which torch brings."""
    allowed = {"fb_fairseq", "torch", "triton", *sys.stdlib_module_names}
    for module in package().values():
        for name, line in imported_names(module) if module.room == room else ():
            assert name.split(".")[0] in allowed, f"{module.name}:{line} imports {name}"
            kernels = ".triton." in module.name
            assert kernels or not name.startswith("triton"), f"{module.name}:{line}"


PROGRAM = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("fairseq", "omegaconf", "hydra"):
            raise ImportError(f"{name} was imported")
sys.meta_path.insert(0, Refuse())
import torch, fb_fairseq, fb_fairseq.ops, fb_fairseq.modules, fb_fairseq.papers.benchmark.command
import fb_fairseq.streams.checkpoints, fb_fairseq.streams.hooks
from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, TransformerOptions
options = TransformerOptions(decoder_layers=1, decoder_embed_dim=8, decoder_ffn_embed_dim=8, decoder_attention_heads=2)
for stack in (FeedbackTransformer, RelativeTransformer, AllAttention):
    y, state = stack(options)(torch.randn(3, 2, 8))
    y.sum().backward()
print("fairseq" in sys.modules)
"""


def output_of(program: str) -> str:
    """The last line that a program prints in a fresh interpreter; of the errors if it prints nothing."""
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    return (done.stdout or done.stderr).splitlines()[-1]


def test_ops_and_modules_run_with_torch_alone():
    """In an interpreter that refuses to import fairseq."""
    assert output_of(PROGRAM) == "False"


@pytest.mark.not_fast
def test_tasks_know_nothing_of_models():
    assert output_of("import sys, fb_fairseq.tasks; print('fb_fairseq.models' in sys.modules)") == "False"


def test_files_of_the_suite_exist():
    """Those that ``tests/conftest.py`` names."""
    assert all((REPOSITORY / "tests" / name).exists() for name in (*LONGEST, *ON_CI))
