"""A small Feedback Transformer on the bytes of real text, in a few minutes on a CPU. ``python -m fb_fairseq
quickstart`` runs it wherever the package is installed, ``examples/quickstart.sh`` from a clone."""

import importlib.util
import os
import re
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from fb_fairseq.errors import UserError, missing_package
from fb_fairseq.papers.runner import command
from fb_fairseq.papers.runner.data import prepare_data, preprocess_bytes
from fb_fairseq.papers.runner.language_modeling import read_evaluation
from fb_fairseq.papers.runner.options import RecipeParser
from fb_fairseq.papers.runner.shell import Shell, read
from fb_fairseq.papers.runner.sweep import Call, Experiment, Run

TEST_SPLIT = re.compile(r"^test: \d+ documents?, (\d+) bytes", re.MULTILINE)
PROMPT, LONGEST_PROMPT = "def __init__(self", 60


# By minutes of training, about, on two idle CPU cores. How these were found: examples/results/quickstart.md. In so few
# updates, a longer span is no better.
SETTINGS = {
    2: dict(updates=1000, layers=2, width=128, span=16, lr=0.006),
    10: dict(updates=2300, layers=3, width=192, span=32, lr=0.004),
    60: dict(updates=15000, layers=3, width=160, span=32, lr=0.004),
}


class Quickstart(Experiment):
    """The recipe: one run, RUN/ = OUT/checkpoints."""

    name = "quickstart"
    summary = "train on the bytes of real text, evaluate, generate and draw, in a few minutes on a CPU"
    corpus = extra = ""
    small, full = SETTINGS, None

    def parser(self) -> RecipeParser:
        parser = super().parser()
        parser.prog = f"python -m fb_fairseq {self.name}"
        return parser

    def add_options(self, parser: RecipeParser) -> None:
        text = "text to train on (default: the source code of the Python standard library)"
        parser.add_argument("--text", metavar="FILE", help=text)
        text = "how long training takes, about, on two idle CPU cores: 2 (default), 10 or 60"
        parser.add_argument("--minutes", default="2", metavar="N", help=text)
        parser.add_numbers(updates="number of training updates (default: as many as fit)")

    def folder(self, call: Call) -> str:
        minutes = call.args.minutes
        return self.name + ("" if minutes == "2" else f"-{minutes}min")

    def runs(self, call: Call) -> Iterator[Run]:
        args = call.args
        if args.text is not None and not (os.path.isfile(args.text) and os.path.getsize(args.text)):
            raise UserError(f"--text {args.text}: no such file, or an empty one; choose another")
        if args.minutes not in map(str, SETTINGS):
            raise UserError(f"--minutes {args.minutes}: give 2, 10 or 60")
        setting = SETTINGS[int(args.minutes)]
        values = dict(setting=setting, updates=args.updates or setting["updates"], started=time.monotonic())
        call.source = os.path.abspath(args.text) if args.text else ""
        yield Run(os.path.join(call.out, "checkpoints"), values)

    def begin(self, call: Call) -> None:
        shell, out, text = call.shell, call.out, call.source
        updates = call.runs[0].values["updates"]
        shell.do(keep_setting, out, f"{call.args.minutes} minutes, {updates} updates")
        shell.say(f"== Data: bytes of {text or 'the Python standard library'}")
        python = f"{sys.version.split()[0]} {sysconfig.get_path('stdlib')}"
        prepare_data(shell, out, call.data, "bytes" if text else python, text, prepare)
        shell.say(read(os.path.join(call.data, "sizes")).rstrip())

    def run(self, call: Call, shell: Shell, run: Run) -> None:
        """Train, evaluate, draw and generate."""
        self.train(call, shell, run)
        best = os.path.join(run.path, "checkpoint_best.pt")
        shell.comment("evaluate")
        shell.say("\n== Evaluating on the test split")
        options = ["--task", "streaming_lm", "--gen-subset", "test", "--valid-streams", 32, "--tokens-per-sample", 32]
        words = ["fairseq-eval-lm", call.data, "--user-dir", shell.user_dir, *options, "--path", best, "--cpu"]
        shell.run(*words, what="evaluation", log=os.path.join(call.out, "eval.log"))
        shell.comment("draw the learning curve and the memory weights")
        if shell.do(importlib.util.find_spec, "matplotlib", otherwise=True):
            words = ["python", "-m", "fb_fairseq", "plot", "--curves", run.log]
            words += ["--metric", "bpb", "--title", "Feedback Transformer on bytes", "--layer-weights", best]
            shell.run(*words, "--out", os.path.join(call.out, "quickstart.png"))
        else:
            remedy = missing_package(ImportError(name="matplotlib"))
            shell.say(f"== No figure: {remedy}, then run the same command again")
        shell.comment("generate")
        shell.say("== Sampling from the model")
        words = ["python", "-m", "fb_fairseq", "generate", "--path", best, "--data", call.data, "--prompt"]
        words += [prompt_of(call.source) if call.source else PROMPT, "--length", 260, "--seed", 1, "--cpu"]
        shell.run(*words)
        shell.do(say_result, shell, call.out, call.data, run.values["started"], best)

    def train(self, call: Call, shell: Shell, run: Run) -> None:
        """Train the model, on a CPU even if there is a GPU."""
        shell.comment("train")
        shell.do(call.machines.look, shell)
        call.machines.gpus = 0
        setting, updates = run.values["setting"], run.values["updates"]
        options = dict(
            task="streaming_lm",
            arch="feedback_transformer_lm",
            decoder_layers=setting["layers"],
            decoder_embed_dim=setting["width"],
            decoder_ffn_embed_dim=4 * setting["width"],
            decoder_attention_heads=4,
            decoder_normalize_before=True,
            attention_span=setting["span"],
            tokens_per_sample=32,
            batch_size=48,
            valid_streams=32,
            criterion="lm_loss",
            optimizer="adam",
            lr=setting["lr"],
            lr_scheduler="cosine",
            warmup_updates=100,
            clip_norm=1.0,
            keep_interval_updates=1,
        )
        every = -(-updates // 5)
        call.trainer.train(shell, run.path, call.data, options, updates=updates, every=every, seed=1)


def prepare(shell: Shell, text: str, folder: str) -> None:
    """Binarise the bytes of the text or, if there is none, of the Python standard library."""
    sizes = os.path.join(folder, "sizes")
    if text:
        preprocess_bytes(shell, text, folder, log=sizes)
    else:
        words = ("python", "-m", "fb_fairseq.papers.experiments.corpora.standard_library", folder)
        shell.run(*words, what="preparing the data", log=sizes)


def keep_setting(out: str, setting: str) -> None:
    """Write down the setting; refuse a folder whose model was trained with another one."""
    path = os.path.join(out, "setting")
    kept = read(path).strip() or setting
    if kept != setting and os.path.exists(os.path.join(out, "checkpoints")):
        others = "--text, --minutes or --updates"
        raise UserError(f"--out {out}: holds a model with another {others}; choose another folder")
    Path(path).write_text(f"{setting}\n", encoding="utf-8")


def prompt_of(text: str) -> str:
    """The beginning of a text, as far as it is ASCII, in the first line."""
    with open(text, "rb") as file:
        lines = file.read(LONGEST_PROMPT).splitlines() or [b""]
    return "".join(chr(byte) for byte in lines[0] if 32 <= byte < 127).replace("\\", "\\\\")


def say_result(shell: Shell, out: str, data: str, started: float, model: str) -> None:
    """Say the bits per byte of the test split: all bits, including those of </s>, divided by its bytes."""
    bits, tokens = read_evaluation(os.path.join(out, "eval.log"))
    size = int(TEST_SPLIT.search(read(os.path.join(data, "sizes")))[1])
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    shell.say(f"\nTest split: {bits * tokens / size:.3f} bits per byte ({size} bytes)")
    shell.say(f"It took {minutes} min {seconds} s. Model: {model}")


QUICKSTART = Quickstart()


def main(argv: list[str] | None = None) -> int:
    """Run ``python -m fb_fairseq quickstart``. Returns the exit status."""
    return command.main([QUICKSTART.name, *(sys.argv[1:] if argv is None else argv)])
