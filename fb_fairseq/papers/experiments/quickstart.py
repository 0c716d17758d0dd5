"""A small Feedback Transformer on the bytes of real text, in a few minutes on a CPU.

``python -m fb_fairseq quickstart`` runs it wherever the package is installed, ``examples/quickstart.sh`` from a clone.
"""

import importlib.util
import os
import re
import sys
import sysconfig
import time
from dataclasses import dataclass
from typing import List, Optional, Sequence

from fb_fairseq.errors import UserError, missing_package
from fb_fairseq.papers.runner import command
from fb_fairseq.papers.runner import data as prepared
from fb_fairseq.papers.runner.machines import Machines
from fb_fairseq.papers.runner.options import RecipeParser, add_numbers, output_folder
from fb_fairseq.papers.runner.session import new_shell, output
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.text import preprocess_bytes
from fb_fairseq.papers.runner.training import Trainer

BITS = re.compile(r"Loss \(base 2\): ([\d.]+),")
TEST_SPLIT = re.compile(r"^test: \d+ documents?, (\d+) bytes, (\d+) tokens", re.MULTILINE)
PROMPT, LONGEST_PROMPT = "def __init__(self", 60


@dataclass(frozen=True)
class Setting:
    """A model that can be trained in some minutes on two idle CPU cores. How these were found:
    examples/results/quickstart.md. In so few updates, a longer span is no better."""

    updates: int
    layers: int
    width: int
    span: int
    lr: float


SETTINGS = {
    2: Setting(updates=1000, layers=2, width=128, span=16, lr=0.006),
    10: Setting(updates=2300, layers=3, width=192, span=32, lr=0.004),
    60: Setting(updates=7500, layers=3, width=256, span=32, lr=0.003),
}


class Quickstart:
    """The recipe."""

    name = "quickstart"
    summary = "train on the bytes of real text, evaluate, generate and draw, in a few minutes on a CPU"

    def parser(self) -> RecipeParser:
        """The parser of its command line."""
        parser = RecipeParser(self.name, description=self.summary)
        parser.prog = f"python -m fb_fairseq {self.name}"
        text = "text to train on (default: the source code of the Python standard library)"
        parser.add_argument("--text", metavar="FILE", help=text)
        text = "how long training takes, about, on two idle CPU cores: 2 (default), 10 or 60"
        parser.add_argument("--minutes", default="2", metavar="N", help=text)
        add_numbers(parser, updates="number of training updates (default: as many as fit)")
        parser.add_argument("--out", metavar="DIR", help="output folder (default: runs/quickstart, …)")
        return parser

    def main(self, argv: Sequence[str], shell: Optional[Shell] = None) -> None:
        """Train, evaluate, draw and generate.

        Raises:
            UserError: there is a mistake in the command line, or a step has failed.
        """
        started = time.monotonic()
        args = self.parser().parse(argv)
        shell = shell or new_shell(args.print)
        if args.text is not None and not (os.path.isfile(args.text) and os.path.getsize(args.text)):
            raise UserError(f"--text {args.text}: no such file, or an empty one; choose another")
        if args.minutes not in map(str, SETTINGS):
            raise UserError(f"--minutes {args.minutes}: give 2, 10 or 60")
        setting = SETTINGS[int(args.minutes)]
        text = os.path.abspath(args.text) if args.text else ""
        updates = args.updates or setting.updates
        default = self.name + ("" if args.minutes == "2" else f"-{args.minutes}min")
        out = output_folder(args.out, default, shell)
        with output(shell, self.name, out):
            if not shell.printing:
                keep_setting(out, f"{args.minutes} minutes, {updates} updates")
                shell.say(f"== Data: bytes of {text or 'the Python standard library'}")
            data = os.path.join(out, "data")
            python = f"{sys.version.split()[0]} {sysconfig.get_path('stdlib')}"
            prepared.prepare_data(shell, out, data, "bytes" if text else python, text, prepare)
            if not shell.printing:
                with open(os.path.join(data, "sizes"), encoding="utf-8") as file:
                    shell.say(file.read().rstrip())
            self._train(shell, out, data, setting, updates)
            self._show(shell, out, data, text)
            if not shell.printing:
                minutes, seconds = divmod(int(time.monotonic() - started), 60)
                shell.say(f"\n{result(out, data)}\nIt took {minutes} min {seconds} s. Model: {checkpoint(out)}")

    def _train(self, shell: Shell, out: str, data: str, setting: Setting, updates: int) -> None:
        shell.comment("train")
        machines = Machines()
        if not shell.printing:
            machines.look(shell)
            machines.gpus = 0
        options = dict(
            task="streaming_lm",
            arch="feedback_transformer_lm",
            decoder_layers=setting.layers,
            decoder_embed_dim=setting.width,
            decoder_ffn_embed_dim=4 * setting.width,
            decoder_attention_heads=4,
            decoder_normalize_before=True,
            attention_span=setting.span,
            tokens_per_sample=32,
            batch_size=48,
            valid_streams=32,
            criterion="lm_loss",
            optimizer="adam",
            lr=setting.lr,
            lr_scheduler="cosine",
            warmup_updates=100,
            clip_norm=1.0,
            keep_interval_updates=1,
        )
        run, every = os.path.join(out, "checkpoints"), -(-updates // 5)
        Trainer(out, machines).train(shell, run, data, options, updates=updates, every=every, seed=1)

    def _show(self, shell: Shell, out: str, data: str, text: str) -> None:
        """Evaluate, draw and generate."""
        shell.comment("evaluate")
        shell.say("\n== Evaluating on the test split")
        options = ["--task", "streaming_lm", "--gen-subset", "test", "--valid-streams", 32, "--tokens-per-sample", 32]
        words = ["fairseq-eval-lm", data, "--user-dir", shell.user_dir, *options, "--path", checkpoint(out), "--cpu"]
        shell.run(*words, what="evaluation", log=os.path.join(out, "eval.log"))
        shell.comment("draw the learning curve and the memory weights")
        if shell.printing or importlib.util.find_spec("matplotlib"):
            words = ["python", "-m", "fb_fairseq", "plot", "--curves", os.path.join(out, "checkpoints.log")]
            words += ["--metric", "bpb", "--title", "Feedback Transformer on bytes", "--layer-weights", checkpoint(out)]
            shell.run(*words, "--out", os.path.join(out, "quickstart.png"))
        else:
            remedy = missing_package(ImportError(name="matplotlib"))
            shell.say(f"== No figure: {remedy}, then run the same command again")
        shell.comment("generate")
        shell.say("== Sampling from the model")
        words = ["python", "-m", "fb_fairseq", "generate", "--path", checkpoint(out), "--data", data]
        words += ["--prompt", prompt_of(text) if text else PROMPT, "--length", 260, "--seed", 1, "--cpu"]
        shell.run(*words)


def checkpoint(out: str) -> str:
    """The path of the model."""
    return os.path.join(out, "checkpoints", "checkpoint_best.pt")


def prepare(shell: Shell, text: str, folder: str) -> None:
    """Binarise the bytes of the text or, if there is none, of the Python standard library."""
    sizes = None if shell.printing else os.path.join(folder, "sizes")
    if text:
        preprocess_bytes(shell, text, folder, log=sizes)
    else:
        words = ("python", "-m", "fb_fairseq.papers.experiments.corpora.standard_library", folder)
        shell.run(*words, what="preparing the data", log=sizes)


def keep_setting(out: str, setting: str) -> None:
    """Write down the setting.

    Raises:
        UserError: the folder has a model that was trained with another one.
    """
    path = os.path.join(out, "setting")
    kept = setting
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            kept = file.read().strip()
    if kept != setting and os.path.exists(os.path.join(out, "checkpoints")):
        raise UserError(
            f"--out {out}: holds a model with another --text, --minutes or --updates; choose another folder"
        )
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{setting}\n")


def prompt_of(text: str) -> str:
    """The beginning of a text, as far as it is ASCII, in the first line."""
    with open(text, "rb") as file:
        lines = file.read(LONGEST_PROMPT).splitlines() or [b""]
    return "".join(chr(byte) for byte in lines[0] if 32 <= byte < 127).replace("\\", "\\\\")


def result(out: str, data: str) -> str:
    """The bits per byte of the test split: all bits, including those of </s>, divided by its bytes."""
    with open(os.path.join(out, "eval.log"), encoding="utf-8", errors="replace") as file:
        bits = BITS.findall(file.read())
    with open(os.path.join(data, "sizes"), encoding="utf-8") as file:
        found = TEST_SPLIT.search(file.read())
    if not bits or not found:
        raise UserError(f"{out}/eval.log: has no result; run the same command again")
    size, tokens = int(found[1]), int(found[2])
    return f"Test split: {float(bits[-1]) * tokens / size:.3f} bits per byte ({size} bytes)"


QUICKSTART = Quickstart()


def main(argv: Optional[List[str]] = None) -> int:
    """Run ``python -m fb_fairseq quickstart``. Returns the exit status."""
    return command.main([QUICKSTART.name, *(sys.argv[1:] if argv is None else argv)])
