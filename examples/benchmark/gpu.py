"""Check and measure everything on a GPU, or train one experiment there, and write one page about it; see gpu.sh.

    python examples/benchmark/gpu.py [--minutes 8] [--out runs/gpu] [--cpu]
    python examples/benchmark/gpu.py --train walk|A5|S5|char-PTB [--ptb DIR] [--minutes 8] [--out runs/gpu] [--cpu]

Each measurement runs in a process of its own, so that one that fails does not take the others with it. Checks and
measurements need torch only, without fairseq its trainings are skipped; --train needs fairseq, but for A5 and S5.
"""

import argparse
import datetime
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from fb_fairseq.hardware import hardware  # noqa: E402
from fb_fairseq.papers.results.record import HERE, read_record  # noqa: E402

RED, PLAIN = "\033[31m", "\033[0m"
# Log lines about something that runs more slowly than it could, or not at all.
FALLBACK = re.compile(r"capturing failed|operations run|loop runs|is not available|Traceback")
HIDDEN = re.compile(  # JSON, logs, the profiler's lines; progress
    r"^\{|^\d{4}-\d\d-\d\d|^(USDT|DEBUG|ERROR|INFO|WARNING):|.*Warning:|timed run"
)
SHOWN_LOG_LINES = 8
STOPPING = 20  # seconds that a process has after Ctrl-C, in which a training saves its checkpoint

TINY = dict(layers=2, embed_dim=32, heads=2, ffn_dim=64, span=16, batch_size=4, block=8)
SIZES = {  # of the papers: v3 Table 9; and that of Table 5's language models
    "random walk": dict(layers=4, embed_dim=256, heads=4, ffn_dim=1024, span=100, batch_size=512, block=64),
    "char-PTB": dict(layers=6, embed_dim=384, heads=4, ffn_dim=1536, span=512, batch_size=64, block=128),
    "char-PTB, 512 streams": dict(layers=6, embed_dim=384, heads=4, ffn_dim=1536, span=512, batch_size=512, block=64),
    "width 1024": dict(layers=8, embed_dim=1024, heads=8, ffn_dim=4096, span=512, batch_size=32, block=64),
}
PRECISIONS = ([], ["--amp"], ["--fp16"], ["--bf16"], ["--update-freq", "2"])

# Experiments of --train: the recipe, its names of the models, its options on a CPU and on a GPU. The papers' warm-up
# would take most of the time, and with their 2,048 streams of PTB there would be some thirty updates.
FAIRSEQ_MODELS = ("feedback_transformer_lm", "relative_transformer_lm")
TRACKING = (["--small", "--updates", "20", "--longest", "4"], ["--full"], [])
EXPERIMENTS = {
    "walk": (
        "random_walk",
        FAIRSEQ_MODELS,
        "--small --updates 20 --train 200 --valid 20 --test 20".split(),
        ["--full"],
        "--bf16 --lr 0.0003 --clip-norm 1.0 --warmup-updates 100".split(),
    ),
    "A5": ("word_problem --group A5 --no-speed", ("feedback", "transformer"), *TRACKING),
    "S5": ("word_problem --group S5 --no-speed", ("feedback", "transformer"), *TRACKING),
    "char-PTB": (
        "char_ptb",
        tuple(f"{name}_char_ptb" for name in FAIRSEQ_MODELS),
        ["--small", "--updates", "20"],
        ["--full"],
        "--bf16 --batch-size 128 --warmup-updates 100".split(),
    ),
}
FIRST_SHARE = 2 / 3  # of the time, for the Feedback Transformer


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


class Result(NamedTuple):
    """What came of a measurement."""

    measurement: Measurement
    output: str
    seconds: float
    problem: str | None

    @property
    def fallbacks(self) -> list[str]:
        """The lines about fallbacks."""
        return [line.strip() for line in self.output.splitlines() if FALLBACK.search(line)]

    @property
    def shown(self) -> str:
        """The output without its JSON and log lines; of a log, its last lines about speed."""
        lines = self.output.splitlines()
        logged = [line for line in lines if "step loop" in line or "train_inner" in line][-SHOWN_LOG_LINES:]
        printed = [] if self.measurement.logs else [line for line in lines if not HIDDEN.match(line)]
        return "\n".join(printed + logged).strip("\n")


def run(measurement: Measurement, folder: Path, left: float) -> Result:
    """Run a measurement; its output goes to a log in the folder. An experiment whose time is up is interrupted as by
    Ctrl-C, other measurements are killed.

    Args:
        left: seconds that are left for it.
    """
    log = folder / f"{re.sub(r'[^a-z0-9]+', '-', measurement.title.lower()).strip('-')}.log"
    modules = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": modules, "PYTHONWARNINGS": "ignore"}
    start, problem = time.monotonic(), None
    with open(log, "wb") as file:
        pipes = dict(stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process = subprocess.Popen(measurement.command, cwd=REPOSITORY, env=environment, **pipes)
        except OSError as error:
            return Result(measurement, "", 0, f"failed: {error.strerror}")
        try:
            process.wait(max(min(left, measurement.limit or left), 1))
        except subprocess.TimeoutExpired:
            problem = "stopped: the time was up"
            if measurement.limit:  # a training, which saves what it has
                os.killpg(process.pid, signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOPPING)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # and its children, which would go on using the GPU
            process.wait()
    output = log.read_text(encoding="utf-8", errors="replace")
    if process.returncode and not problem:
        last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
        problem = f"failed with status {process.returncode}: {last.strip()}"
    return Result(measurement, output, time.monotonic() - start, problem)


def benchmark(what: str, title: str, sizes: dict[str, int], *more: str) -> Measurement:
    """One of ``fb-fairseq benchmark``'s commands."""
    given = [(name, n) for name, n in sizes.items() if (what, name) != ("decode", "block")]
    options = [[f"--{name.replace('_', '-')}", str(n)] for name, n in given]
    return Measurement(title, [sys.executable, "-m", "fb_fairseq", "benchmark", what, *sum(options, []), *more])


def measurements(cpu: bool, folder: Path) -> list[Measurement]:
    """All checks and measurements, the most important first."""
    device, quick = ["--device", "cpu" if cpu else "cuda"], ["--repeats", "1" if cpu else "5"]
    loops = ["--only", "reference" if cpu else "triton"]
    sizes, half = ({"tiny": TINY}, "fp32") if cpu else (SIZES, "bf16")
    main_name, main_size = ("tiny", TINY) if cpu else ("char-PTB", SIZES["char-PTB"])
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
        size = {**main_size, "batch_size": streams}
        found.append(benchmark("decode", f"Decoding, {main_name}, {half}, {streams} streams", size, *steps, *device))
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


def experiment(args: argparse.Namespace) -> list[Measurement]:
    """The trainings of one experiment's two models, the Feedback Transformer first. They end by themselves when their
    time is over; the same command again goes on."""
    recipe, models, small, full, options = EXPERIMENTS[args.train]
    seconds, found = 60 * args.minutes, []
    for model, share in zip(models, (FIRST_SHARE, 1 - FIRST_SHARE)):
        command = [sys.executable, "-m", "fb_fairseq", "recipe", *recipe.split(), "--models", model, "--seed", "1"]
        command += [*(small if args.cpu else full), "--out", str(args.out / args.train)]
        if args.train == "char-PTB":
            command += [str(args.ptb), "--finetune-updates", "0", "--test-streams", "512"]  # a short evaluation
        minutes = done_before(args.out / args.train, model) + 0.8 * share * args.minutes  # the rest: start and tests
        limit = ["--stop-time-hours", f"{minutes / 60:.5f}"] if models != EXPERIMENTS["A5"][1] else []
        limit = limit or ["--minutes", f"{minutes:.3f}"]
        command += ["--", *limit, *([] if args.cpu else options)]
        found.append(Measurement(f"{args.train}, {model}", command, limit=share * seconds))
    return found


def done_before(folder: Path, model: str) -> float:
    """The minutes that earlier calls have trained a model."""
    record = read_record(str(folder))
    steps = record["steps"].items() if record else ()
    seconds = [step["seconds"] for name, step in steps if name.startswith(f"{HERE}/{model}") and "settings" in step]
    return max(seconds, default=0) / 60


def page(device: str, args: argparse.Namespace, results: list[Result], waiting: list[Measurement]) -> str:
    """The page in Markdown."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True)
    train = f"--train {args.train} " if args.train else ""
    parts = [
        f"# {device}, {datetime.date.today()}",
        f"Written by `bash examples/benchmark/gpu.sh {train}--minutes {args.minutes:g}`; torch {torch.__version__}, "
        f"CUDA {torch.version.cuda}, commit {done.stdout.strip() or 'unknown'}.",
        "## Problems and fallbacks",
    ]
    lines = []
    for result in results:
        lines += [f"- **{result.measurement.title}: {result.problem}**"] if result.problem else []
        lines += [f"- {result.measurement.title}: {line}" for line in dict.fromkeys(result.fallbacks)]
    lines += [f"- {measurement.title}: not run, the time was up" for measurement in waiting]
    parts.append("\n".join(lines) or "None.")
    if args.train and (args.out / args.train / "curves.png").exists():
        parts.append(f"![Learning curves]({args.train}/curves.png)")
    for result in results:
        words = ["python" if word == sys.executable else word for word in result.measurement.command]
        command = shlex.join(os.path.basename(word) if os.path.isabs(word) else word for word in words)
        parts += [f"## {result.measurement.title}", f"`{command}` ({result.seconds:.0f} s)"]
        parts.append(f"```\n{result.shown}\n```")
    return "\n\n".join(parts) + "\n"


def write_json(path: Path, device: str, results: list[Result]) -> None:
    """The benchmarks' JSON lines, each with the measurement's title."""
    with open(path, "w", encoding="utf-8") as file:
        for result in results:
            found = [line for line in result.output.splitlines() if line.startswith('{"') and line.endswith("}")]
            about = {"title": result.measurement.title, "device": device, "date": str(datetime.date.today())}
            about.update(problem=result.problem, fallbacks=result.fallbacks)
            file.write(json.dumps({**about, **(json.loads(found[-1]) if found else {})}) + "\n")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", choices=EXPERIMENTS, help="train one experiment at the papers' size instead")
    parser.add_argument("--ptb", type=Path, metavar="DIR", help="of char-PTB: the folder of ptb.train.txt, …")
    parser.add_argument("--minutes", type=float, default=8, metavar="N", help="time for all of it (default: 8)")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "runs/gpu", metavar="DIR", help="default: runs/gpu")
    parser.add_argument("--cpu", action="store_true", help="tiny sizes on the CPU, to try the script itself")
    args = parser.parse_args()
    if not args.minutes > 0:
        parser.error(f"--minutes {args.minutes:g}: give a positive number")
    if not args.cpu and not torch.cuda.is_available():
        parser.error("torch finds no GPU; --cpu tries the script itself")
    if (args.train == "char-PTB") != bool(args.ptb):
        parser.error("--train char-PTB and --ptb DIR: give both, or none")
    args.out = args.out.absolute()
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def main() -> int:
    """Run everything. Returns the exit status: 1 if a measurement has failed."""
    args = parse()
    device = hardware("cpu" if args.cpu else "cuda")
    end = time.monotonic() + 60 * args.minutes
    waiting, results = experiment(args) if args.train else measurements(args.cpu, args.out), []
    path = args.out / f"{datetime.date.today()}-{re.sub(r'[^A-Za-z0-9]+', '-', device).strip('-')}"
    path = path.with_name(f"{path.name}{f'-{args.train}' if args.train else ''}.md")
    while waiting and time.monotonic() < end:
        print(f"== {waiting[0].title}", flush=True)
        results.append(run(waiting.pop(0), args.out, end - time.monotonic()))
        print(results[-1].shown[-3000:], flush=True)
        for line in filter(None, [results[-1].problem, *results[-1].fallbacks]):
            print(f"{RED}{line}{PLAIN}", flush=True)
        # Written after each measurement, so that nothing is lost.
        path.write_text(page(device, args, results, waiting), encoding="utf-8")
        write_json(path.with_suffix(".jsonl"), device, results)
    print(f"\nPage: {path}")
    return int(any(result.problem for result in results))


if __name__ == "__main__":
    sys.exit(main())
