"""What gpu_papers.py trains and measures: the papers' tasks at their own sizes, and their speeds."""

import argparse
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import papers_page
from measuring import Measurement

from fb_fairseq.errors import UserError
from fb_fairseq.papers import values as published
from fb_fairseq.papers.experiments import char_ptb
from fb_fairseq.papers.runner import labels
from fb_fairseq.papers.runner.command import find
from fb_fairseq.papers.runner.language_modeling import LanguageModelingCall
from fb_fairseq.papers.runner.session import new_shell
from fb_fairseq.papers.runner.settings import Options, words
from fb_fairseq.papers.runner.text import check_file, first_file, unpack

ARCHITECTURES = {"feedback": "feedback_transformer_lm", "transformer": "relative_transformer_lm"}
TINY = dict(
    decoder_layers=2,
    decoder_embed_dim=32,
    decoder_head_dim=None,
    decoder_ffn_embed_dim=64,
    decoder_attention_heads=2,
    attention_span=16,
    batch_size=16,
    tokens_per_sample=16,
)
LIBRARY = "the bytes of Python's standard library"


@dataclass(frozen=True)
class Task:
    """A task on which both models are trained.

    Attributes:
        key: its name in files.
        metric: in fairseq's log; ``unit`` is its heading.
        papers: the title of the papers' table in ``fb_fairseq/papers/values/results.json``.
        shares: of the time, of each model.
        every: updates between validations.
        changes: what differs from the recipe's full setting, and ``why``.
        recipe: of a toy task; None: char_ptb.
        equal: the second model is trained for as many updates as the first one, instead of as long.
    """

    key: str
    title: str
    about: str
    metric: str
    unit: str
    papers: str
    shares: Tuple[float, float]
    every: int
    changes: Options = field(default_factory=dict)
    why: str = ""
    recipe: Optional[labels.LabelledTask] = None
    equal: bool = False

    def options(self, model: str) -> Tuple[Dict[str, Any], int]:
        """The recipe's options of a model's training, with the changes; and its number of updates."""
        if self.recipe:
            run = self._run()
            return {**run.options(ARCHITECTURES[model]), **self.changes}, run.setting.updates
        name = f"{ARCHITECTURES[model]}_char_ptb"
        args = char_ptb.CHAR_PTB.parser().parse(["DATA", "--models", name])
        call = LanguageModelingCall(char_ptb.CHAR_PTB, new_shell(True), args)
        (run,) = call.runs
        training = run.training
        options = {**call.options(run), "lr": training.lr, **training.resolved(training.warmup), "patience": None}
        return {**options, **self.changes}, training.updates

    def _run(self) -> labels.Run:
        args = self.recipe.parser().parse(["--full"])
        return labels.Run(self.recipe, args, "", (), seed=1)

    def data(self, folder: Path, args: argparse.Namespace) -> List[List[str]]:
        """The commands that make its data."""
        here = [sys.executable, "-m"]
        prefixes = {split: f"--{split}pref" for split in ("train", "valid", "test")}
        binarise = [*here, "fairseq_cli.preprocess", "--destdir", str(folder), "--workers", "1"]
        if self.recipe:
            sizes = dict(self._run().sequences)
            if args.cpu:
                sizes.update(train=200, valid=20, test=20, **({"statements": 10} if self.key == "algorithmic" else {}))
            command = [*here, "fb_fairseq", "synthetic-tasks", self.recipe.name, "--seed", "1", *words(sizes)]
            paths = [word for split, option in prefixes.items() for word in (option, str(folder / split))]
            languages = ["--source-lang", "input", "--target-lang", "label"]
            return [[*command, "--out", str(folder)], [*binarise, *paths, *languages]]
        if args.ptb is None:
            text = folder / "text.txt"
            library = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
            size = 50_000 if args.cpu else char_ptb.FILES["train"][1]
            text.write_bytes(b"".join(path.read_bytes() for path in library)[:size])
            command = [*here, "fb_fairseq", "preprocess-bytes", "--text", str(text), "--split", "90,5,5"]
            return [[*command, "--destdir", str(folder)]]
        commands, shell = [], new_shell(False)
        for split, (md5, size) in char_ptb.FILES.items():
            file = first_file(shell, str(args.ptb), f"ptb.{split}.txt", f"ptb.{split}.txt.gz")
            if file is None:
                raise UserError(f"--ptb {args.ptb}: no ptb.{split}.txt or ptb.{split}.txt.gz in this folder")
            text, characters = (str(folder / f"{split}.{kind}") for kind in ("words", "chars"))
            unpack(shell, file, text)
            check_file(shell, text, md5, f"ptb.{split}.txt", size)
            commands.append([*here, "fb_fairseq.papers.experiments.corpora.characters", text, characters])
        paths = [word for split, option in prefixes.items() for word in (option, str(folder / f"{split}.chars"))]
        return [*commands, [*binarise, *paths, "--only-source"]]


def tasks(ptb: Optional[Path]) -> List[Task]:
    """The trainings, the most important first."""
    toy = dict(lr=0.0003, clip_norm=1.0, warmup_updates=100)
    why = "Rate and clipping are v1 Table 9's; the papers' 1,000 updates of warm-up would take most of these minutes."
    table = "at the size of v3 Table 9: 4 layers of width 256, span 100, 512 streams of 64 steps"
    text = "Character-level Penn Treebank" if ptb else "Python's standard library, in place of PTB"
    return [
        Task(
            *("walk", "Random walk on 8 x 8 cells", f"10,000 walks of 100 steps (v3 §4.1.2), {table}."),
            *("accuracy", "labels right (%)", "Random walk", (6, 6), 40, toy, why, find("random_walk")),
        ),
        Task(
            *("ptb" if ptb else "library", text),
            "6 layers of width 384, span 512 (v3 Table 9). Both models see the same number of tokens, in the same "
            "order. The papers' figures: v1 Table 2, the Feedback Transformer with 2 layers and as many parameters."
            + (
                ""
                if ptb
                else f" (`--ptb` was not given: these are {LIBRARY}, 5.1 MB as PTB, and have no such figures.)"
            ),
            *("loss", "bits per character" if ptb else "bits per byte", "Character-level Penn Treebank", (7, 4), 100),
            dict(batch_size=128, warmup_updates=100),
            "(The papers' 2,048 streams would make some thirty updates in this time.)",
            equal=True,
        ),
        Task(
            *("algorithmic", "Algorithmic task, 3 variables", f"10,000 programs of 100 statements, {table}."),
            *("accuracy", "labels right (%)", "Algorithmic task", (5, 5), 80, toy, why, find("algorithmic")),
        ),
    ]


def figures_of_papers(found: List[Task]) -> Dict[str, Dict[str, float]]:
    """The papers' figures by task and model."""
    tables = {table["title"]: table for table in published.load("results")}
    figures: Dict[str, Dict[str, float]] = {}
    for task in found:
        metric = "accuracy" if task.recipe else "dev_bits_per_token"
        for row in tables[task.papers]["rows"]:
            for model, name in papers_page.MODELS.items():
                if row["name"].startswith(name) and "match" in row and task.key != "library":
                    rows = figures.setdefault(task.key, {})
                    rows.setdefault(model, row[metric])  # the first of several: three variables
    return figures


class Speed(NamedTuple):
    """A measurement of speed.

    Attributes:
        key: its name in ``--only``.
        share: of the time.
        figure: the name of the file that it draws.
    """

    key: str
    share: float
    measurement: Measurement
    figure: str = ""


def speeds(args: argparse.Namespace) -> List[Speed]:
    """The measurements of speed."""
    here = [sys.executable, "-m", "fb_fairseq", "benchmark"]
    device = ["--device", "cpu" if args.cpu else "cuda"]
    figure = args.out / "block_length.png"
    blocks = (
        "--layers 4 --embed-dim 512 --ffn-dim 4096 --heads 8 --span 512 --dtype bf16"  # Table 9, WikiText-103 small
    )
    table5 = "--full --memory 32 --repeats 1"
    if args.cpu:
        blocks = "--layers 1 --embed-dim 32 --ffn-dim 64 --heads 2 --span 16 --repeats 1 --blocks 16 32 --tokens 64"
        table5 = "--small --repeats 1"
    command = [*here, "bptt", *device, "--out", str(figure), *blocks.split()]
    title = "Time of a batch against block length (v1 Figure 9)"
    found = [Speed("blocks", 3, Measurement(title, command), figure.name)]
    names = {"lm": "language modelling", "rl": "reinforcement learning", "translation": "translation"}
    for key, name in names.items():
        command = [*here, "table5", *device, *table5.split(), "--tasks", key]
        found.append(Speed(key, 3, Measurement(f"Table 5: {name}", command)))
    return found
