"""What gpu.py runs: checks and measurements, or the trainings of one experiment; the most important first."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import NamedTuple

import torch

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from fb_fairseq.papers.results.record import HERE, read_record  # noqa: E402

TINY = dict(layers=2, embed_dim=32, heads=2, ffn_dim=64, span=16, batch_size=4, block=8)
SIZES = {  # of the papers: v3 Table 9; and that of Table 5's language models
    "random walk": dict(layers=4, embed_dim=256, heads=4, ffn_dim=1024, span=100, batch_size=512, block=64),
    "char-PTB": dict(layers=6, embed_dim=384, heads=4, ffn_dim=1536, span=512, batch_size=64, block=128),
    "char-PTB, 512 streams": dict(layers=6, embed_dim=384, heads=4, ffn_dim=1536, span=512, batch_size=512, block=64),
    "width 1024": dict(layers=8, embed_dim=1024, heads=8, ffn_dim=4096, span=512, batch_size=32, block=64),
}
PRECISIONS = ([], ["--amp"], ["--fp16"], ["--bf16"], ["--update-freq", "2"])

FAIRSEQ_MODELS = ("feedback_transformer_lm", "relative_transformer_lm")


class Experiment(NamedTuple):
    """The trainings of ``--train NAME``.

    Attributes:
        recipe: the words of ``fb-fairseq recipe``.
        models: the recipe's names of the Feedback Transformer and of the Transformer.
        small: options of the recipe on a CPU.
        full: options of the recipe on a GPU.
        training: further options of the trainings on a GPU. The papers' warm-up would take most of the time, and with
            their 2,048 streams of PTB there would be some thirty updates.
    """

    recipe: list[str]
    models: tuple[str, str]
    small: list[str]
    full: list[str]
    training: list[str]


def word_problem(group: str) -> Experiment:
    """Products of permutations: of the group A5 or S5."""
    return Experiment(
        recipe=f"word_problem --group {group} --no-speed".split(),
        models=("feedback", "transformer"),
        small="--small --updates 20 --longest 4".split(),
        full=["--full"],
        training=[],
    )


PTB_OPTIONS = "--finetune-updates 0 --test-streams 512".split()  # the latter for a short evaluation
EXPERIMENTS = {
    "walk": Experiment(
        recipe=["random_walk"],
        models=FAIRSEQ_MODELS,
        small="--small --updates 20 --train 200 --valid 20 --test 20".split(),
        full=["--full"],
        training="--bf16 --lr 0.0003 --clip-norm 1.0 --warmup-updates 100".split(),
    ),
    "A5": word_problem("A5"),
    "S5": word_problem("S5"),
    "char-PTB": Experiment(
        recipe=["char_ptb"],
        models=("feedback_transformer_lm_char_ptb", "relative_transformer_lm_char_ptb"),
        small=["--small", "--updates", "20", *PTB_OPTIONS],
        full=["--full", *PTB_OPTIONS],
        training="--bf16 --batch-size 128 --warmup-updates 100".split(),
    ),
}
FIRST_SHARE = 2 / 3  # of the time, for the Feedback Transformer
TRAINING_SHARE = 0.8  # of a model's time; the rest: start and tests


class Measurement(NamedTuple):
    """A command and what its part of the page is called.

    Attributes:
        logs: the output is a log, of which the page shows a few lines.
        limit: of an experiment, in seconds.
    """

    title: str
    command: list[str]
    logs: bool = False
    limit: float | None = None


def benchmark(what: str, title: str, sizes: dict[str, int], *more: str) -> Measurement:
    """One of ``fb-fairseq benchmark``'s commands: ``train`` or ``decode``, with these sizes and further words."""
    options = []
    for name, size in sizes.items():
        options += [f"--{name.replace('_', '-')}", str(size)]
    return Measurement(title, [sys.executable, "-m", "fb_fairseq", "benchmark", what, *options, *more])


def decoding(title: str, sizes: dict[str, int], *more: str) -> Measurement:
    """As ``benchmark decode``, which has no ``--block``."""
    return benchmark("decode", title, {name: size for name, size in sizes.items() if name != "block"}, *more)


def measurements(cpu: bool, folder: Path) -> list[Measurement]:
    """All checks and measurements, the most important first.

    Args:
        cpu: a few, of tiny sizes.
        folder: for the trainings' data.
    """
    device = ["--device", "cpu" if cpu else "cuda"]
    quick = ["--repeats", "1" if cpu else "5"]
    loops = ["--only", "reference" if cpu else "triton"]
    half = "fp32" if cpu else "bf16"
    sizes = {"tiny": TINY} if cpu else SIZES
    main_name = "tiny" if cpu else "char-PTB"
    fairseq = importlib.util.find_spec("fairseq") is not None
    found = [Measurement("Environment", [sys.executable, "-m", "fb_fairseq", "env"])]
    for dtype in ("fp32", "bf16"):
        title = f"Every loop, a tiny speed test, {dtype}"
        found.append(benchmark("train", title, TINY, "--dtype", dtype, *quick, *device))
    if importlib.util.find_spec("pytest"):
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fast"]
        if importlib.util.find_spec("xdist"):
            tests += ["-n", str(min(8, os.cpu_count() or 1))]
        files = ["tests/ops/test_buffers.py"] if cpu else ["tests/gpu", "tests/ops", "tests/modules"]
        found.append(Measurement("Tests", [*tests, *files]))
    for name, size in sizes.items():
        found.append(benchmark("train", f"Training, {name}, {half}", size, "--dtype", half, *quick, *loops, *device))
    steps = ["--steps", "20" if cpu else "500", "--storage", "keys-values", "--dtype", half]
    for streams in (4,) if cpu else (1, 64):
        size = {**sizes[main_name], "batch_size": streams}
        found.append(decoding(f"Decoding, {main_name}, {half}, {streams} streams", size, *steps, *device))
    if fairseq:
        found += trainings(cpu, folder)
    if not cpu:  # if there is time left
        for name, size in SIZES.items():
            found.append(benchmark("train", f"Training, {name}, fp32", size, *quick, *loops, *device))
    return found


def trainings(cpu: bool, folder: Path) -> list[Measurement]:
    """Short trainings with ``fairseq-train``: both models at the char-PTB size, each precision, and two GPUs."""
    text, data = folder / "text.txt", folder / "data"
    text.write_text("".join(path.read_text(encoding="utf-8") for path in sorted(REPOSITORY.glob("fb_fairseq/**/*.py"))))
    prepare = [sys.executable, "-m", "fb_fairseq", "preprocess-bytes", "--text", str(text), "--split", "90,5,5"]
    rest = [str(data), *"--user-dir fb_fairseq --task streaming_lm --criterion lm_loss".split()]
    rest += "--decoder-normalize-before --clip-norm 0.1 --optimizer adam --lr 0.001 --no-save".split()
    rest += "--disable-validation --log-format simple --log-interval 10 --dropout 0.1 --attention-dropout 0.1".split()
    train = [sys.executable, "-m", "fairseq_cli.train", *rest]
    sizes = "--decoder-layers 2 --decoder-embed-dim 32 --decoder-attention-heads 2 --attention-span 16 --batch-size 4"
    small = f"{sizes} --tokens-per-sample 16 --max-update 5 --arch feedback_transformer_lm".split()
    large = "--decoder-layers 6 --decoder-embed-dim 384 --decoder-ffn-embed-dim 1536 --decoder-attention-heads 4 "
    large += "--attention-span 512 --batch-size 128 --tokens-per-sample 64 --max-update 60 --bf16"
    found = [Measurement("Data for the trainings", [*prepare, "--destdir", str(data), "--overwrite"])]
    for arch in () if cpu else FAIRSEQ_MODELS:
        command = [*train, *large.split(), "--arch", arch]
        found.append(Measurement(f"fairseq-train, char-PTB size, {arch}", command, logs=True))
    for options in PRECISIONS[:2] if cpu else PRECISIONS:
        command = [*train, *small, *options, *(["--cpu"] if cpu else [])]
        found.append(Measurement(f"fairseq-train, {' '.join(options) or 'fp32'}", command, logs=True))
    if not cpu and torch.cuda.device_count() > 1:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        for backend in ("legacy_ddp", "pytorch_ddp"):
            command = [*launcher, *train[1:], *small, "--ddp-backend", backend]
            found.append(Measurement(f"Two GPUs, {backend}", command, logs=True))
    return found


def experiment(name: str, *, minutes: float, out: Path, ptb: Path | None, cpu: bool) -> list[Measurement]:
    """The trainings of one experiment's two models, the Feedback Transformer first. They end by themselves when their
    time is over; the same command again goes on.

    Args:
        name: one of ``EXPERIMENTS``.
        minutes: for all of it.
        out: the folder in which the experiment has a folder of its name.
        ptb: of char-PTB, the folder of the text; else None.
        cpu: small sizes, instead of the papers'.
    """
    recipe, models, small, full, training = EXPERIMENTS[name]
    found = []
    for model, share in zip(models, (FIRST_SHARE, 1 - FIRST_SHARE)):
        command = [sys.executable, "-m", "fb_fairseq", "recipe", *recipe, "--models", model, "--seed", "1"]
        command += [*(small if cpu else full), "--out", str(out / name)]
        if ptb:
            command.append(str(ptb))
        until = done_before(out / name, model) + TRAINING_SHARE * share * minutes
        command += ["--", *time_limit(recipe, until), *([] if cpu else training)]
        found.append(Measurement(f"{name}, {model}", command, limit=share * 60 * minutes))
    return found


def time_limit(recipe: list[str], minutes: float) -> list[str]:
    """The option with which a training of the recipe ends when it has taken so long."""
    if "word_problem" in recipe:
        return ["--minutes", f"{minutes:.3f}"]
    return ["--stop-time-hours", f"{minutes / 60:.5f}"]


def done_before(folder: Path, model: str) -> float:
    """The minutes that earlier calls have trained a model."""
    record = read_record(str(folder))
    steps = record["steps"].items() if record else ()
    seconds = [step["seconds"] for name, step in steps if name.startswith(f"{HERE}/{model}") and "settings" in step]
    return max(seconds, default=0) / 60
