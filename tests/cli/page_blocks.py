"""The blocks of README and docs, on small data and with few updates, and a folder to run them in."""

import os
import re
import subprocess
from pathlib import Path

from tests.cli.command_server import CommandServer
from tests.cli.conftest import made_up_text
from tests.cli.parallel_text import pairs, write_pairs
from tests.conftest import REPOSITORY

BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


# What makes blocks quick: few updates, of the standard library the files ab*.py only, tiny models, and short
# translations, which such models do not end. Patterns, and what stands there instead.
SMALL = {
    r"--max-update \d+": "--max-update 6",
    r"--validate-interval-updates \d+": "--validate-interval-updates 3 --log-interval 2",
    r'"/\*\.py': '"/ab*.py',
    r"(--..coder-(?:ffn-)?embed-dim) \d+": r"\1 32",
    "encoder-layers 3": "encoder-layers 1",
    "--arch feedback_decoder_iwslt_de_en": (
        r"\g<0> --encoder-embed-dim 32 --encoder-ffn-embed-dim 32 --decoder-ffn-embed-dim 32"
    ),
    "fairseq-generate translation-bin": r"\g<0> --max-len-b 9",
}


def blocks(page: str):
    """The blocks of a page to run, each its language, "bash" or "python", and its text: without those for the scripts
    and the installation, which have tests of their own, and the pseudocode. ``page``: its path in the repository.
    """
    for language, text in BLOCK.findall((REPOSITORY / page).read_text(encoding="utf-8")):
        if not text.startswith(("bash ", "pip install", "memory = []")):
            yield language, text


def program(page: str, *left_out: str) -> str:
    """The blocks of Python of a page, which are one program, but for those that start so."""
    return "\n".join(text for language, text in blocks(page) if language == "python" and not text.startswith(left_out))


def small(text: str) -> str:
    """A block for the shell, made quick; see ``SMALL``."""
    for pattern, instead in SMALL.items():
        text = re.sub(pattern, instead, text)
    return text


class Clone:
    """What the pages presume: a clone with an environment, and texts.

    Args:
        folder: an empty one, which becomes the clone.
        commands: the ``CommandServer``, which runs the commands.
        python: what runs the blocks of Python; that of the server by default.
    """

    def __init__(self, folder: Path, commands: CommandServer, python: str | Path = ""):
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
            "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{text}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def run_page(self, page: str, *left_out: str) -> str:
        """Run the blocks of a page made quick: first those for the shell, but for those that start with one of
        ``left_out``; then those of Python, as one program. Returns what that printed.
        """
        for language, text in blocks(page):
            if language == "bash" and not text.startswith(left_out):
                self.run(language, small(text))
        return self.run("python", program(page))
