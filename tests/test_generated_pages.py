"""Pages and tables that programs in docs write are those that they would write now."""

import runpy

import pytest

import fb_fairseq.models  # noqa: F401  before fairseq is used
from tests.conftest import REPOSITORY, on_ci

# isort: split
import fairseq
from fairseq.models import ARCH_MODEL_REGISTRY


@pytest.mark.parametrize("program", ["make_options", on_ci("make_architectures")])
def test_generated_pages_are_current(program):
    if program == "make_options" and not fairseq.__version__.startswith("0.12.2"):
        pytest.skip("the page is written with fairseq 0.12.2; fairseq-fixed has other options")
    made = runpy.run_path(str(REPOSITORY / f"docs/{program}.py"))
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), f"run: python docs/{program}.py"


def test_the_table_of_step_loops_is_current():
    made = runpy.run_path(str(REPOSITORY / "docs/make_options.py"))
    text = made["CHOOSING"].read_text(encoding="utf-8")
    assert made["with_step_loops"](text) == text, "run: python docs/make_options.py"


def test_every_architecture_is_on_its_page():
    page = (REPOSITORY / "docs/architectures.md").read_text(encoding="utf-8")
    own = [arch for arch, model in ARCH_MODEL_REGISTRY.items() if model.__module__.startswith("fb_fairseq.")]
    assert len(own) > 20 and [arch for arch in own if f"`{arch}`" not in page] == []
