"""The blocks of README and docs, on small data and with few updates, and a folder to run them in."""

import os
import re
import subprocess
from pathlib import Path

from tests.cli.conftest import made_up_text
from tests.cli.parallel_text import pairs, write_pairs
from tests.conftest import REPOSITORY

BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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
