"""Check and measure everything on a GPU, or train one experiment there, and write one page about it; see gpu.sh.

    python examples/benchmark/gpu.py [--minutes 8] [--out runs/gpu] [--cpu]
    python examples/benchmark/gpu.py --train walk|A5|S5|char-PTB [--ptb DIR] [--minutes 8] [--out runs/gpu] [--cpu]

Each measurement runs in a process of its own, so that one that fails does not take the others with it. Checks and
measurements need torch only, without fairseq its trainings are skipped; --train needs fairseq, but for A5 and S5.
"""

import argparse
import datetime
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
from gpu_commands import EXPERIMENTS, REPOSITORY, Measurement, experiment, measurements

from fb_fairseq.hardware import hardware

RED, PLAIN = "\033[31m", "\033[0m"
# Log lines about something that runs more slowly than it could, or not at all.
FALLBACK = re.compile(
    "capturing failed|operations run|operation by operation|reference runs|reference loop|is not available|Traceback"
)
HIDDEN = re.compile(  # JSON, logs, the profiler's lines; progress
    r"^\{|^\d{4}-\d\d-\d\d|^(USDT|DEBUG|ERROR|INFO|WARNING):|.*Warning:|timed run"
)
SHOWN_LOG_LINES = 8
STOPPING = 20  # seconds that a process has after Ctrl-C, in which a training saves its checkpoint


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


def shown_command(words: list[str]) -> str:
    """A command as the page shows it, without the folders of absolute paths."""
    words = ["python" if word == sys.executable else word for word in words]
    return shlex.join(os.path.basename(word) if os.path.isabs(word) else word for word in words)


def page(device: str, args: argparse.Namespace, results: list[Result], waiting: list[Measurement]) -> str:
    """The page in Markdown."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True)
    parts = [
        f"# {device}, {datetime.date.today()}",
        f"Written by `{shown_command(['bash', 'examples/benchmark/gpu.sh', *args.given])}`; torch {torch.__version__}, "
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
        command = shown_command(result.measurement.command)
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


def absolute(text: str) -> Path:
    """The type of options that are paths: commands run in another folder."""
    return Path(text).absolute()


def parse() -> argparse.Namespace:
    """The options; ``given`` are their words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", choices=EXPERIMENTS, help="train one experiment at the papers' size instead")
    parser.add_argument("--ptb", type=absolute, metavar="DIR", help="of char-PTB: the folder of ptb.train.txt, …")
    parser.add_argument("--minutes", type=float, default=8, metavar="N", help="time for all of it (default: 8)")
    text = "folder of the page, the JSON lines and the logs (default: runs/gpu)"
    parser.add_argument("--out", type=absolute, default=REPOSITORY / "runs/gpu", metavar="DIR", help=text)
    parser.add_argument("--cpu", action="store_true", help="tiny sizes on the CPU, to try the script itself")
    args = parser.parse_args()
    if not args.minutes > 0:
        parser.error(f"--minutes {args.minutes:g}: give a positive number")
    if not args.cpu and not torch.cuda.is_available():
        parser.error("torch finds no GPU; --cpu tries the script itself")
    if (args.train == "char-PTB") != bool(args.ptb):
        parser.error("--train char-PTB and --ptb DIR: give both, or none")
    args.given = sys.argv[1:]
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def main() -> int:
    """Run everything. Returns the exit status: 1 if a measurement has failed."""
    args = parse()
    device = hardware("cpu" if args.cpu else "cuda")
    end = time.monotonic() + 60 * args.minutes
    if args.train:
        waiting = experiment(args.train, minutes=args.minutes, out=args.out, ptb=args.ptb, cpu=args.cpu)
    else:
        waiting = measurements(args.cpu, args.out)
    results: list[Result] = []
    slug = re.sub(r"[^A-Za-z0-9]+", "-", device).strip("-")
    path = args.out / f"{'-'.join(filter(None, [str(datetime.date.today()), slug, args.train]))}.md"
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
