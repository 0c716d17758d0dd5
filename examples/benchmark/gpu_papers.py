"""Train the papers' own sizes on a GPU for some minutes, and write one page about it; see gpu_papers.sh.

    python examples/benchmark/gpu_papers.py [--minutes 8] [--ptb DIR] [--out runs/gpu_papers] [--cpu]

Needs torch and fairseq, and no programs on PATH. Writes OUT/page.md, OUT/results.json and at most two figures; data,
checkpoints and logs go to --work. The same command again goes on. What is due last gets what time is left.
"""

import argparse
import datetime
import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import torch

sys.path.insert(0, str(Path(__file__).parent))

import papers_page  # noqa: E402
from measuring import Measurement, Result, Running, commit, parse, ready, typed  # noqa: E402
from papers_tasks import ARCHITECTURES, LIBRARY, TINY, Speed, Task, figures_of_papers, speeds, tasks  # noqa: E402

from fb_fairseq.errors import UserError  # noqa: E402
from fb_fairseq.files import atomic_write  # noqa: E402
from fb_fairseq.hardware import hardware  # noqa: E402
from fb_fairseq.papers.runner.settings import Options, words  # noqa: E402
from fb_fairseq.papers.runner.training import NEVER, PARAMETERS  # noqa: E402

PART = 16_000_000  # bytes of a part of a checkpoint
STARTING, LONGEST_START = 6.0, 15.0  # seconds that a training takes beside its updates: expected, and believed
LEAST = 4.0  # seconds of training
PREPARING = 0.5  # share of the time that making the data and compiling kernels may take


class Papers:
    """One call: what there is to do, and what was found so far.

    Args:
        args: the command line.
    """

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.end = time.monotonic() + 60 * args.minutes
        self.tasks, self.speeds = tasks(args.ptb), speeds(args)
        names = [piece.key for piece in [*self.tasks, *self.speeds]]
        self.chosen = args.only.split() or names
        for name in self.chosen:
            if name not in names:
                raise UserError(f"--only {name}: unknown; choose from {' '.join(names)}")
        self.papers = {} if args.cpu else figures_of_papers(self.tasks)
        self.results = args.out / "results.json"
        self.state: Dict[str, Any] = {"cpu": args.cpu, "trainings": {}, "benchmarks": {}}
        if self.results.exists():
            self.state = json.loads(self.results.read_text(encoding="utf-8"))
        if self.state["cpu"] != args.cpu:
            raise UserError(
                f"--out {args.out}: has results {'without' if args.cpu else 'of'} --cpu; choose another folder"
            )
        self.compiles = not args.cpu
        self.overhead = STARTING
        self.problems: List[str] = []
        self.failed = False
        self.process: Optional[subprocess.Popen] = None
        device = "cpu" if args.cpu else "cuda"
        self.about = {
            "device": hardware(device),
            "command": f"bash examples/benchmark/gpu_papers.sh {shlex.join(given(sys.argv[1:]))}".strip(),
            "versions": f"torch {torch.__version__}, CUDA {torch.version.cuda}",
            "commit": commit(),
        }

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.end - time.monotonic()

    def run(self) -> None:
        """Do everything, and write the page after each piece."""
        self.prepare()
        pieces = [
            (share, task, model)
            for task in self.tasks
            if task.key in self.chosen and self.marker(task).exists()
            for model, share in zip(ARCHITECTURES, task.shares)
        ]
        for speed in self.speeds:
            if speed.key in self.chosen and speed.measurement.title not in self.state["benchmarks"]:
                pieces.append((speed.share, speed, ""))
        self.process = ready()
        try:
            while pieces and self.left > 0:
                seconds = self.left * pieces[0][0] / sum(share for share, _, _ in pieces)
                _, piece, model = pieces.pop(0)
                if model:
                    self.train(piece, model, seconds)
                else:
                    self.measure(piece)
                self.write(pieces)
        finally:
            self.process.kill()
        self.draw()
        self.write(pieces)

    def marker(self, task: Task) -> Path:
        """A file that is there once the task has its data."""
        return self.args.work / task.key / "complete"

    def prepare(self) -> None:
        """Make the data of all tasks at once; and compile the kernels of its trainings, to Triton's cache."""
        running = []
        for task in self.tasks:
            folder = self.marker(task).parent
            if self.marker(task).exists() or task.key not in self.chosen:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            chain = " && ".join(map(shlex.join, [*task.data(folder, self.args), ["touch", str(self.marker(task))]]))
            if self.compiles:
                options = dict(max_update=2, max_valid_steps=2, no_save=True, save_dir=str(folder / "compilation"))
                chain += f" && ({shlex.join(self.command(task, 'feedback', options))} || true)"
            measurement = Measurement(f"Data: {task.title}", ["bash", "-c", chain], logs=True)
            print(f"== {measurement.title}", flush=True)
            running.append(Running(measurement))
        for process in running:
            self.report(process.wait(self.args.logs, PREPARING * self.left))

    def command(self, task: Task, model: str, more: Options) -> List[str]:
        """The command that trains a model."""
        options, _ = task.options(model)
        options.update(TINY if self.args.cpu else dict(bf16=True))
        if self.args.cpu:
            options.update(cpu=True, warmup_updates=10)
        elif model == "feedback":
            options["step_loop"] = "fused"
        every = 10 if self.args.cpu else task.every
        options.update(
            valid_streams=options["batch_size"],
            validate_interval_updates=every,
            save_interval_updates=NEVER,
            validate_interval=NEVER,
            save_interval=NEVER,
            no_epoch_checkpoints=True,
            save_stream_memory="none",
            log_format="json",
            log_interval=5 if self.args.cpu else 10,
            seed=1,
        )
        data = str(self.args.work / task.key)
        return [
            sys.executable,
            "-m",
            "fairseq_cli.train",
            data,
            "--user-dir",
            "fb_fairseq",
            *words({**options, **more}),
        ]

    def train(self, task: Task, model: str, seconds: float) -> None:
        """Train a model for its share of the time, from its last checkpoint on."""
        name = f"{task.key}-{model}"
        checkpoint = self.args.work / name / "checkpoint_last.pt"
        options, most = task.options(model)
        trainings = self.state["trainings"].setdefault(task.key, {})
        training = trainings.setdefault(model, {"points": [], "runs": [], "parameters": None})
        updates = trained = 0
        if join(self.args.out, name, checkpoint):
            updates, trained = reached(checkpoint)
        found = [point for point in papers_page.curves_of(training) if point.updates <= updates]
        if task.equal and model == "transformer" and "feedback" in trainings:
            end = papers_page.last(papers_page.curves_of(trainings["feedback"]))
            most = end.updates if end else most
        if updates >= most:
            print(f"== {task.title}, {model}: has {updates} updates", flush=True)
            self.state["trainings"][task.key].pop(model) if not found else None
            return
        budget = max(seconds - self.overhead, LEAST)
        more = dict(max_update=most, stop_time_hours=(trained + budget) / 3600, save_dir=str(checkpoint.parent))
        measurement = Measurement(title_of(task, model), self.command(task, model, more), logs=True)
        result = self.start(measurement).wait(self.args.logs, min(seconds + 30, self.left + 15), saves=True)
        self.report(result)
        before = max((point.seconds for point in found), default=trained)
        found += papers_page.points(result.lines, task.metric, before)
        if found:
            print(
                f"{found[-1].updates} updates in {found[-1].seconds:.0f} s: {found[-1].value:g} {task.unit}", flush=True
            )
        size = PARAMETERS.findall(result.output)
        training.update(
            command=typed(measurement.command),
            parameters=int(size[-1].replace(",", "")) if size else training["parameters"],
            tokens_per_update=_size(measurement.command),
            points=found,
            loops=[line.rpartition(" | ")[2] for line in result.output.splitlines() if "step loop: " in line],
        )
        run = {**self.about, "date": str(datetime.date.today()), "seconds": round(result.seconds, 1)}
        training["runs"].append({**run, "from_update": updates, "problem": result.problem})
        if not found:
            del trainings[model]
            self.problem(f"{measurement.title}: nothing was logged in {result.seconds:.0f} s")
        elif not result.problem and found[-1].updates < most:
            self.overhead = min(max(result.seconds - budget, 0.0), LONGEST_START)
        if self.args.keep_checkpoints in ("all", name) and checkpoint.exists():
            split(checkpoint, self.args.out, name)

    def measure(self, speed: Speed) -> None:
        """Measure a speed."""
        measurement = speed.measurement
        result = self.start(measurement).wait(self.args.logs, self.left)
        self.report(result)
        if result.problem:
            return
        values = [line for line in result.output.splitlines() if line.startswith('{"') and line.endswith("}")]
        found = {**self.about, "date": str(datetime.date.today()), "command": typed(measurement.command)}
        found.update(seconds=round(result.seconds, 1), shown=result.shown)
        found.update(figure=speed.figure, values=json.loads(values[-1]) if values else {})
        self.state["benchmarks"][measurement.title] = found

    def start(self, measurement: Measurement) -> Running:
        """Start it in the process that is ready, and another one that gets ready meanwhile."""
        print(f"== {measurement.title}", flush=True)
        running, self.process = Running(measurement, self.process), ready()
        self.draw()
        return running

    def draw(self) -> None:
        """Draw what was trained so far."""
        try:
            papers_page.draw(self.tasks, self.state, self.papers, self.args.out / "curves.png")
        except ImportError:
            text = "curves.png: not drawn, matplotlib is not installed"
            if text not in self.problems:
                self.problem(text)

    def report(self, result: Result) -> None:
        """Print what came of a measurement, and remember what went wrong."""
        if not result.measurement.logs:
            print(result.shown, flush=True)
        self.failed |= bool(result.problem) and not result.problem.startswith("stopped")
        problem = [f"**{result.problem}**"] if result.problem else []
        for line in problem + list(dict.fromkeys(result.fallbacks)):
            self.problem(f"{result.measurement.title}: {line}")

    def problem(self, text: str) -> None:
        """Remember a problem for the page."""
        print(text, flush=True)
        self.problems.append(text)

    def write(self, waiting: List[tuple]) -> None:
        """Write the results and the page; ``waiting``: what has not run yet."""
        with atomic_write(str(self.results)) as temporary, open(temporary, "w", encoding="utf-8") as file:
            json.dump(self.state, file)
        problems = self.problems + [f"{title_of(*piece)}: not run, the time was up" for _, *piece in waiting]
        text = papers_page.page(self.about, self.tasks, self.state, self.papers, problems)
        (self.args.out / "page.md").write_text(text, encoding="utf-8")


def title_of(piece: Any, model: str) -> str:
    """The title of a task's model, or of a speed."""
    return f"{piece.title}: {papers_page.MODELS[model]}" if model else piece.measurement.title


def given(arguments: List[str]) -> List[str]:
    """The command line for the page: folders by their names."""
    return [Path(word).name if word.startswith("/") else word for word in arguments]


def _size(command: List[str]) -> int:
    """The tokens of an update."""
    values = [command[command.index(option) + 1] for option in ("--batch-size", "--tokens-per-sample")]
    return int(values[0]) * int(values[1])


def reached(checkpoint: Path) -> Tuple[int, float]:
    """The updates of a checkpoint, and the seconds that fairseq has counted."""
    content = torch.load(checkpoint, map_location="cpu", weights_only=False)
    return content["optimizer_history"][-1]["num_updates"], content["extra_state"]["previous_training_time"]


def split(checkpoint: Path, folder: Path, name: str) -> None:
    """Copy a checkpoint to parts of at most 16 MB."""
    for old in folder.glob(f"{name}.part-*"):
        old.unlink()
    with open(checkpoint, "rb") as file:
        for number, part in enumerate(iter(lambda: file.read(PART), b"")):
            (folder / f"{name}.part-{number:03}").write_bytes(part)


def join(folder: Path, name: str, checkpoint: Path) -> bool:
    """Put a checkpoint together from its parts, unless it is there. Returns whether it is."""
    parts = sorted(folder.glob(f"{name}.part-*"))
    if parts and not checkpoint.exists():
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(str(checkpoint)) as temporary, open(temporary, "wb") as file:
            for part in parts:
                file.write(part.read_bytes())
    return checkpoint.exists()


def main() -> int:
    """Run everything. Returns the exit status: 1 if something has failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    text = f"the folder of PTB's word-level files; without it, {LIBRARY} take the place of its characters"
    parser.add_argument("--ptb", type=Path, metavar="DIR", help=text)
    parser.add_argument("--work", type=Path, metavar="DIR", help="data, checkpoints and logs (default: OUT/work)")
    text = "copy the last checkpoints to OUT, in parts of at most 16 MB: all, or one, such as walk-feedback"
    parser.add_argument("--keep-checkpoints", metavar="NAME", default="", help=text)
    text = "only these: walk ptb (or library) algorithmic blocks (Figure 9) lm rl translation (Table 5)"
    parser.add_argument("--only", metavar='"NAME …"', default="", help=text)
    args = parse(parser, "runs/gpu_papers")
    args.work = (args.work or args.out / "work").absolute()
    args.logs = args.work / "logs"
    args.logs.mkdir(parents=True, exist_ok=True)
    try:
        papers = Papers(args)
        papers.run()
    except UserError as error:
        parser.error(str(error))
    print(f"\nPage: {args.out / 'page.md'}")
    return int(papers.failed)


if __name__ == "__main__":
    sys.exit(main())
