"""The blocks of README and docs run as they are written, in order, on small data and with few updates."""

import importlib.util
import math
import os
import re
import runpy
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import fairseq
import pytest

from fb_fairseq.commands.plot.logs import read_log
from fb_fairseq.commands.preprocess_bytes import binarise
from tests.cli.checkpoints import loss_by_hand
from tests.cli.conftest import made_up_text
from tests.cli.explored import serving
from tests.cli.parallel_text import pairs, write_pairs
from tests.conftest import REPOSITORY

BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GENERATED = {"options.md": "make_options", "architectures.md": "make_architectures"}


# Pages whose blocks other tests run (test_gpu_page, test_not_served, test_recipe_pages), or nobody: they are for
# several machines, for contributors, or a text of help.
RUN_ELSEWHERE = "gpu not-served recipes state-tracking distributed development options".split()
LANGUAGE_MODELLING = ("faq", "generation", "initialisation", "streams")
RUN_HERE = {*LANGUAGE_MODELLING, "language-modeling", "looking-inside", "plain-torch", "transformers", "translation"}


def blocks(page: str):
    """The language and text of each block to run: without those for the scripts and the installation, which have tests
    of their own, and the pseudocode."""
    for language, text in BLOCK.findall((REPOSITORY / page).read_text(encoding="utf-8")):
        if not text.startswith(("bash ", "pip install", "memory = []")):
            yield language, text


def program(page: str, *left_out: str) -> str:
    """The blocks of Python of a page, which are one program, but for those that start so."""
    return "\n".join(text for language, text in blocks(page) if language == "python" and not text.startswith(left_out))


def small(text: str) -> str:
    """With six updates and a validation after three, of the standard library the files ab*.py only, tiny models, and
    short translations (such a model does not end them)."""
    text = re.sub(r"--max-update \d+", "--max-update 6", text).replace('"/*.py', '"/ab*.py')
    text = re.sub(r"--validate-interval-updates \d+", "--validate-interval-updates 3 --log-interval 2", text)
    text = text.replace("fairseq-generate translation-bin", "fairseq-generate translation-bin --max-len-b 9")
    text = re.sub(r"(--..coder-(?:ffn-)?embed-dim) \d+", r"\1 32", text).replace("encoder-layers 3", "encoder-layers 1")
    tiny = "--encoder-embed-dim 32 --encoder-ffn-embed-dim 32 --decoder-ffn-embed-dim 32"
    return text.replace("--arch feedback_decoder_iwslt_de_en", f"--arch feedback_decoder_iwslt_de_en {tiny}")


EXPLORE = "fb-fairseq explore"  # serves a page until Ctrl-C


class Clone:
    """What the pages presume: a clone with an environment, whose commands the server runs, and texts."""

    def __init__(self, folder: Path, commands, python: str | Path = ""):
        self.folder = folder
        self.commands = commands
        self.python = python or commands.programs / "python"
        (folder / "fb_fairseq").symlink_to(REPOSITORY / "fb_fairseq")
        (folder / "examples").symlink_to(REPOSITORY / "examples")
        (folder / ".venv/bin").mkdir(parents=True)
        (folder / ".venv/bin/activate").write_text(f"export PATH={commands.programs}:$PATH\n")
        for seed, split in enumerate(("train", "valid", "test")):
            (folder / f"{split}.txt").write_bytes(made_up_text(2000, seed))
            write_pairs(folder / split, pairs(200 if split == "train" else 4, seed))
        (folder / "text.txt").write_bytes(made_up_text(20_000, 3))

    def run(self, language: str, text: str) -> str:
        """Run a block, all of whose commands have to succeed. Returns what it printed."""
        command = ["bash", "-euo", "pipefail", "-c", text] if language == "bash" else [self.python, "-c", text]
        environment = {
            **os.environ,
            "PATH": f"{self.commands.programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{text}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def run_page(self, page: str, *left_out: str) -> None:
        """Run the blocks of a page, first those for the shell, but for those of them that start so."""
        for language, text in blocks(page):
            if language == "bash" and not text.startswith(left_out):
                self.run(language, small(text))
        if program(page):
            self.run("python", program(page))


def test_readme(commands, tmp_path):
    """In a folder with a text, where the package is installed."""
    pytest.importorskip("transformers")
    (_, layers), (_, own_text), (_, in_python), (_, papers) = blocks("README.md")
    clone = Clone(tmp_path, commands, sys.executable)
    clone.run("python", f"{layers}\nassert y.shape == (32, 8, 64) and len(state.memory_KCBD[0]) == 32")
    printed = clone.run("bash", own_text.replace("--text text.txt", "--text text.txt --updates 6"))
    assert printed.count("\nfairseq-train ") == 1 and "bits per byte" in printed and "\nThe " in printed
    assert clone.run("python", in_python).startswith("The ")
    printed = clone.run("bash", small(papers))
    assert "done training" in printed
    assert "--arch feedback_decoder_wmt_en_de_big" in printed and "--arch feedback_decoder_cnn_dm" in printed


def check_curve(folder):
    """A run's log has been drawn, with more than a point."""
    curves = read_log(str(folder / "train.log"), "bpb")
    assert all(len(curves[tag]) > 1 for tag in ("train_inner", "valid"))
    assert (folder / "curves.png").stat().st_size > 1000


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
    """Training runs on the words that are prepared, too."""
    clone, output = first_models
    printed = "\n".join(output.values())
    assert "def main(" in printed and "tensor(" in printed and '"sacrebleu"' in printed
    check_curve(clone.folder)
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


# How the blocks begin that need packages which are not in the environment of the tests.
NEEDS = {"trl": "from datasets import Dataset", "lightning": "import lightning"}


def runnable(page: str) -> str:
    """A page's program, without the blocks whose package is not installed."""
    return program(page, *(block for name, block in NEEDS.items() if importlib.util.find_spec(name) is None))


def test_plain_torch(commands, tmp_path, monkeypatch):
    """In an empty folder, on less text, and without fairseq."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = runnable("docs/plain-torch.md").replace(".read_bytes()", ".read_bytes()[:9000]").replace("=60,", "=6,")
    text += "\nimport sys; print('fairseq' in sys.modules)"
    printed = Clone(tmp_path, commands, sys.executable).run("python", text).splitlines()
    first, last, *lightning = (float(line.split()[0]) for line in printed if " bits per byte" in line)
    assert 2 < last < first < 5 and printed[-1] == "False"
    assert all(abs(again - first) < 0.5 for again in lightning), "the first loop, from other parameters"


@pytest.mark.slow
def test_types_of_plain_torch(tmp_path):
    """mypy finds the mistake that the page names, and no other one."""
    pytest.importorskip("mypy")
    text = f"{program('docs/plain-torch.md')}\nTransformerOptions(decoder_layer=2)\n"
    (tmp_path / "page.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--follow-imports=silent", "page.py"]
    environment = {**os.environ, "MYPYPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    (mistake,) = (line for line in done.stdout.splitlines() if ": error: " in line)
    assert f"page.py:{text.count(chr(10))}: " in mistake and '"decoder_layer"' in mistake


PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((REPOSITORY / "docs").glob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run(page):
    """Each page is on one of the two lists, no block that is run leaves something out (…), and none is fenced so that
    it is not found.
    """
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    fences = re.findall(r"^ *```.*", text, re.MULTILINE)
    assert all(re.fullmatch(r"```(bash|python|mermaid|text)?", fence) for fence in fences) and len(fences) % 2 == 0
    assert all(opening != "```" for opening in fences[::2]) and set(fences[1::2]) <= {"```"}
    name = Path(page).stem
    if name not in RUN_ELSEWHERE and BLOCK.search(text):
        assert name in {"README", *RUN_HERE}
        assert not any("…" in block for _, block in blocks(page))


def test_transformers(clone, tmp_path, monkeypatch, pytestconfig):
    """The blocks of Python are one program. Perplexities are those of fairseq's model; without a network. With --slow,
    those of lm-evaluation-harness, too."""
    harness = pytestconfig.getoption("--slow") and importlib.util.find_spec("lm_eval") is not None
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(clone.folder / "cache"))
    monkeypatch.setattr(clone, "python", sys.executable)
    evaluated = ""
    for language, text in blocks("docs/transformers.md"):
        if language == "bash" and ("lm_eval/run.py" not in text or harness):
            output = clone.run(language, text)
            evaluated += output if "lm_eval/run.py" in text else ""
    printed = clone.run("python", program("docs/transformers.md"))
    assert "def main(" in printed and "StreamCache(position=" in printed
    assert "</s>" not in printed.splitlines()[-1] and printed.splitlines()[-1].startswith("['")
    assert (clone.folder / "finetuned/checkpoint-20/stream_memory.safetensors").exists()
    text = [(clone.folder / "valid.txt").read_bytes()]
    binarise({"train": text, "valid": text}, str(tmp_path), append_eos=False)
    bits, tokens = loss_by_hand(clone.folder / "checkpoints/checkpoint_best.pt", tmp_path, "valid", 1)
    bits /= tokens
    nats = float(re.search(r"nats per token: (.*)", printed)[1])
    assert nats / math.log(2) == pytest.approx(bits, rel=1e-5)
    if evaluated:
        figure = float(re.search(r"bits_per_byte *\|[^|]*\| *([\d.]+)", evaluated)[1])
        assert figure == pytest.approx(bits, abs=6e-5), "of lm-evaluation-harness"


def test_translation(clone, tmp_path):
    """What follows the small model, in a folder with its data."""
    (tmp_path / "translation-bin").symlink_to(clone.folder / "translation-bin")
    Clone(tmp_path, clone.commands).run_page("docs/translation.md", "fairseq-preprocess")


@pytest.mark.parametrize("page", GENERATED)
def test_generated_pages_are_current(page):
    if page == "options.md" and not fairseq.__version__.startswith("0.12.2"):
        pytest.skip("the page is written with fairseq 0.12.2; fairseq-fixed has other options")
    script = REPOSITORY / "docs" / f"{GENERATED[page]}.py"
    made = runpy.run_path(str(script))
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), f"run: python docs/{script.name}"


def test_the_table_of_step_loops_is_current():
    made = runpy.run_path(str(REPOSITORY / "docs/make_options.py"))
    text = made["CHOOSING"].read_text(encoding="utf-8")
    assert made["with_step_loops"](text) == text, "run: python docs/make_options.py"


def test_every_architecture_is_on_its_page():
    from fairseq.models import ARCH_MODEL_REGISTRY

    page = (REPOSITORY / "docs/architectures.md").read_text(encoding="utf-8")
    own = [arch for arch, model in ARCH_MODEL_REGISTRY.items() if model.__module__.startswith("fb_fairseq.")]
    assert len(own) > 20 and [arch for arch in own if f"`{arch}`" not in page] == []
