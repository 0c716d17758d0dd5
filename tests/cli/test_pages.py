"""The blocks of README and docs run as they are written, in order, on small data and with few updates."""

import importlib.util
import math
import re
import shlex
import sys
import urllib.request
from pathlib import Path

import pytest

from fb_fairseq.commands.plot.logs import read_log
from fb_fairseq.commands.preprocess_bytes import binarise
from tests.cli.checkpoints import loss_by_hand
from tests.cli.explored import serving
from tests.cli.page_blocks import BLOCK, Clone, blocks, small
from tests.conftest import REPOSITORY

RUN_ELSEWHERE = {  # by tests of their own
    "not-served": "transformers/test_not_served.py",
    "plain-torch": "cli/test_plain_torch.py",
    "recipes": "cli/test_recipe_pages.py",
    "state-tracking": "cli/test_recipe_pages.py",
}
# For a GPU (test_gpu_page runs the script on a CPU), for several machines, for contributors, and a text of help.
NOT_RUN = {"gpu", "distributed", "development", "options"}
LANGUAGE_MODELLING = ("faq", "generation", "initialisation", "streams")
RUN_HERE = {*LANGUAGE_MODELLING, "language-modeling", "looking-inside", "transformers", "translation"}
# How blocks begin that are run apart from the others of their pages.
EXPLORE = "fb-fairseq explore"  # serves a page until Ctrl-C
HARNESS = "python examples/language_modeling/lm_eval/run.py"


def test_readme(commands, tmp_path):
    """In a folder with a text, where the package is installed."""
    pytest.importorskip("transformers")
    layers, own_text, in_python, papers = (text for _, text in blocks("README.md"))
    clone = Clone(tmp_path, commands, sys.executable)
    clone.run("python", f"{layers}\nassert y.shape == (32, 8, 64) and len(state.memory_KCBD[0]) == 32")
    printed = clone.run("bash", own_text.replace("--text text.txt", "--text text.txt --updates 6"))
    assert printed.count("\nfairseq-train ") == 1 and "bits per byte" in printed and "\nThe " in printed
    assert clone.run("python", in_python).startswith("The ")
    printed = clone.run("bash", small(papers))
    assert "done training" in printed
    assert "--arch feedback_decoder_wmt_en_de_big" in printed and "--arch feedback_decoder_cnn_dm" in printed


@pytest.fixture(scope="module")
def first_models(commands, tmp_path_factory):
    """A clone in which the blocks have run whose models other pages use, and what these have printed."""
    clone = Clone(tmp_path_factory.mktemp("clone"), commands)
    first = [*blocks("docs/language-modeling.md"), next(blocks("docs/translation.md"))]
    return clone, {text: clone.run(language, small(text)) for language, text in first}


@pytest.fixture
def clone(first_models):
    return first_models[0]


def test_first_models(first_models):
    """What they have printed, and their curves, of more than a point. Training runs on the prepared words, too."""
    clone, output = first_models
    printed = "\n".join(output.values())
    assert "def main(" in printed and "tensor(" in printed and '"sacrebleu"' in printed
    curves = read_log(str(clone.folder / "train.log"), "bpb")
    assert len(curves["train_inner"]) > 1 and len(curves["valid"]) > 1
    assert (clone.folder / "curves.png").stat().st_size > 1000
    train = next(text for text in output if "fb-fairseq train data-bin" in text)
    command = re.search(r"^fb-fairseq train (?:.*\\\n)*.*", small(train), re.MULTILINE)[0]
    clone.run("bash", command.replace("data-bin", "words-bin").replace("checkpoints", "words-checkpoints"))


@pytest.mark.parametrize("page", LANGUAGE_MODELLING)
def test_language_modelling(clone, page):
    clone.run_page(f"docs/{page}.md", "mkdir imported")  # tests/papers/import_original has such


def test_looking_inside(clone):
    clone.run_page("docs/looking-inside.md", EXPLORE)
    for name in ("attention", "map", "context"):
        assert (clone.folder / f"{name}.png").stat().st_size > 1000


def test_explore(clone, monkeypatch):
    """The page is served until Ctrl-C; what it shows is tested in ``tests/commands/explore``."""
    pytest.importorskip("gradio")
    monkeypatch.chdir(clone.folder)
    (text,) = (text for _, text in blocks("docs/looking-inside.md") if text.startswith(EXPLORE))
    arguments = shlex.split(text)[len(EXPLORE.split()) :]
    with serving(clone.commands, clone.folder / "explore.log", *arguments) as address:
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert "Feedback Transformer: checkpoints/checkpoint_best.pt" in answer.read().decode()


def test_transformers(clone, tmp_path, monkeypatch, pytestconfig):
    """Losses are those of fairseq's model; with --slow, that of lm-evaluation-harness, too. Without a network."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(clone.folder / "cache"))
    monkeypatch.setattr(clone, "python", sys.executable)
    printed = clone.run_page("docs/transformers.md", HARNESS)
    assert "def main(" in printed and "StreamCache(position=" in printed
    assert "</s>" not in printed.splitlines()[-1] and printed.splitlines()[-1].startswith("['")
    assert (clone.folder / "finetuned/checkpoint-20/stream_memory.safetensors").exists()
    text = [(clone.folder / "valid.txt").read_bytes()]
    binarise({"train": text, "valid": text}, str(tmp_path), append_eos=False)
    bits, tokens = loss_by_hand(clone.folder / "checkpoints/checkpoint_best.pt", tmp_path, "valid", 1)
    nats_per_token = float(re.search(r"nats per token: (.*)", printed)[1])
    assert nats_per_token / math.log(2) == pytest.approx(bits / tokens, rel=1e-5)
    if pytestconfig.getoption("--slow") and importlib.util.find_spec("lm_eval") is not None:
        (text,) = (text for _, text in blocks("docs/transformers.md") if text.startswith(HARNESS))
        bits_per_byte = re.search(r"bits_per_byte *\|[^|]*\| *([\d.]+)", clone.run("bash", text))[1]
        assert float(bits_per_byte) == pytest.approx(bits / tokens, abs=6e-5)


def test_translation(clone, tmp_path):
    """What follows the small model, in a folder with its data."""
    (tmp_path / "translation-bin").symlink_to(clone.folder / "translation-bin")
    Clone(tmp_path, clone.commands).run_page("docs/translation.md", "fairseq-preprocess")


PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((REPOSITORY / "docs").glob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run(page):
    """Each page with blocks is on one of the lists, which are true; no block that is run here leaves something out (…),
    and none is fenced so that it is not found.
    """
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    fences = re.findall(r"^ *```.*", text, re.MULTILINE)
    assert set(fences[::2]) <= {"```bash", "```python", "```mermaid", "```text"}
    assert set(fences[1::2]) <= {"```"} and len(fences) % 2 == 0
    name = Path(page).stem
    if name in RUN_ELSEWHERE:
        assert page in (REPOSITORY / "tests" / RUN_ELSEWHERE[name]).read_text()
    elif name not in NOT_RUN and BLOCK.search(text):
        assert name in {"README", *RUN_HERE}
        assert not any("…" in block for _, block in blocks(page))
