"""The page of gpu_papers.py: learning curves and speeds beside the papers' figures."""

import datetime
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fb_fairseq.drawing import Panel, colors, draw_curve, draw_figure, draw_reference, explain_curves

MODELS = {"feedback": "Feedback Transformer", "transformer": "Transformer"}
ENTRY = re.compile(r"\| (train_inner|valid) \| \{(.*)\}")
VALUE = r'"(?:valid_)?%s": "?([-\d.e+]+)'  # in an entry of fairseq's JSON log
INTRODUCTION = """\
The models and tasks of the papers at their own sizes, as far as they get in a few minutes on one GPU. A run goes on
where the last one stopped, so the curves grow from run to run; all that was trained is shown. Time is that of training
alone, without validation; it begins with the first update, and includes the compilation and capture of kernels that
come with it. Figures of the two models are those of the validation split, on as many streams as training; those of the
papers are after their whole training. A run that goes on starts with empty memories."""
TINY = "**Tried on a CPU with tiny models and data (`--cpu`): the figures mean nothing.**"


class Point(NamedTuple):
    """A value in a log: ``split`` is ``train`` (with dropout, since the entry before) or ``valid``."""

    split: str
    updates: int
    seconds: float
    value: float


def points(lines: Iterable[tuple[float, str]], metric: str, before: float = 0) -> list[Point]:
    """The values of a metric in the log of a training.

    Args:
        lines: each with the time at which it came.
        metric: its name in the log.
        before: seconds that were trained before.
    """
    found: list[Point] = []
    start = pause = None
    for moment, line in lines:
        if start is None:
            start = moment - before if "Start iterating over samples" in line else None
            continue
        if "begin validation on" in line:
            pause = moment
        entry = ENTRY.search(line)
        values = [re.search(VALUE % name, entry[2]) for name in ("num_updates", metric)] if entry else [None]
        if all(values):
            split, end = (entry[1], pause or moment) if entry[1] == "valid" else ("train", moment)
            found.append(Point(split, int(values[0][1]), round(end - start, 2), float(values[1][1])))
        if pause is not None and entry and entry[1] == "valid":
            start, pause = start + moment - pause, None
    return found


def last(found: list[Point], updates: float = float("inf"), seconds: float = float("inf")) -> Point | None:
    """The last validation up to a number of updates and of seconds."""
    reached = [point for point in found if point.split == "valid"]
    return next((p for p in reversed(reached) if p.updates <= updates and p.seconds <= seconds), None)


def curves_of(training: dict[str, Any]) -> list[Point]:
    """The points of a training in ``results.json``."""
    return [Point(*point) for point in training["points"]]


def speed(training: dict[str, Any]) -> float:
    """Tokens per second of the last run, from its second log entry on."""
    found = [point for point in curves_of(training) if point.split == "train"]
    found = [point for point in found if point.updates > training["runs"][-1]["from_update"]]
    if len(found) < 2:
        return 0.0
    first, end = found[0], found[-1]
    return (end.updates - first.updates) * training["tokens_per_update"] / max(end.seconds - first.seconds, 0.01)


def number(value: float | None, form: str = "{:,.0f}") -> str:
    """For a table; a dash where there is none."""
    return "–" if not value else form.format(value)


def table(task: Any, trainings: dict[str, dict[str, Any]], papers: dict[str, float]) -> list[str]:
    """What both models of a task have reached."""
    found = {model: curves_of(training) for model, training in trainings.items()}
    validated = [{point.updates for point in curve if point.split == "valid"} for curve in found.values()]
    both = len(MODELS) == len(validated) and all(validated)
    updates = max(set.intersection(*validated), default=0) if both else 0
    seconds = min(last(curve).seconds for curve in found.values()) if both else 0
    both = f"both after {number(updates)} updates | both after {number(seconds)} s"
    lines = [
        f"| | parameters | updates | tokens | training, s | tokens/s | {task.unit} | {both} | the paper's |",
        "|---|" + "---:|" * 9,
    ]
    for model, training in trainings.items():
        end = last(found[model])
        shown = [end, last(found[model], updates=updates), last(found[model], seconds=seconds)]
        values = [number(point and point.value, "{:.3f}" if task.metric == "loss" else "{:.1f}") for point in shown]
        reached = [training["parameters"], end and end.updates, end and end.updates * training["tokens_per_update"]]
        cells = [*map(number, [*reached, end and end.seconds, speed(training)]), *values]
        lines.append(f"| {MODELS[model]} | {' | '.join(cells)} | {number(papers.get(model), '{:g}')} |")
    return lines


def section(task: Any, trainings: dict[str, dict[str, Any]], papers: dict[str, float]) -> str:
    """A task's part of the page."""
    parts = [f"## {task.title}", task.about]
    if task.changes:
        changes = ", ".join(f"`--{name.replace('_', '-')} {value}`" for name, value in task.changes.items())
        parts.append(f"Other than in the recipe: {changes}. {task.why}".strip())
    parts.append("\n".join(table(task, trainings, papers)))
    parts += [f"`{line}`" for training in trainings.values() for line in training["loops"]]
    commands = [training["command"] for training in trainings.values()]
    parts.append("```bash\n" + "\n".join(commands) + "\n```")
    return "\n\n".join(parts)


def page(about: dict[str, str], tasks: Iterable[Any], state: dict[str, Any], papers: dict, problems: list[str]) -> str:
    """The page in Markdown.

    Args:
        about: ``device``, ``command``, ``versions``, ``commit``.
        tasks: of all trainings.
        state: ``cpu``, ``trainings`` by task and model, and ``benchmarks`` by title.
        papers: figures by task and model.
        problems: and what did not run.
    """
    parts = [
        f"# The papers' own sizes: {about['device']}, {datetime.date.today()}",
        f"Written by `{about['command']}`; {about['versions']}, commit {about['commit']}.",
        TINY if state["cpu"] else INTRODUCTION,
        "## Problems, fallbacks and what did not fit",
        "\n".join(f"- {problem}" for problem in problems) or "None.",
    ]
    trained = {task.key: state["trainings"].get(task.key) for task in tasks}
    if any(trained.values()):
        parts += ["## Learning curves", "![Learning curves, by updates and by time](curves.png)"]
        parts.append("Lines: training, with dropout. Points: validation. Dotted: the papers' figures.")
    parts += [section(task, trained[task.key], papers.get(task.key, {})) for task in tasks if trained[task.key]]
    for title, benchmark in state["benchmarks"].items():
        parts += [f"## {title}", f"`{benchmark['command']}` ({benchmark['seconds']:.0f} s)"]
        parts += [f"![{title}]({benchmark['figure']})"] if benchmark.get("figure") else []
        parts.append(f"```\n{benchmark['shown']}\n```")
    return "\n\n".join(parts) + "\n"


def draw(tasks: Iterable[Any], state: dict[str, Any], papers: dict, path: Path) -> None:
    """The curves of all tasks: by updates on the left, by time on the right.

    Raises:
        ImportError: matplotlib is not installed.
    """
    panels = []
    for task in tasks:
        trainings = state["trainings"].get(task.key, {})
        curves = {MODELS[model]: curves_of(training) for model, training in trainings.items()}
        figures = {MODELS[model]: figure for model, figure in papers.get(task.key, {}).items() if figure}
        for field in ("updates", "seconds") if curves else ():
            panels.append(Panel(partial(draw_task, curves=curves, papers=figures, field=field, task=task)))
    if panels:
        draw_figure(str(path), panels)


def draw_task(axes, curves: dict[str, list[Point]], papers: dict[str, float], field: str, task: Any) -> None:
    """Draw a task's learning curves by name of the model, and the papers' figures."""
    color = colors(curves)
    for name, points in curves.items():
        for split in ("train", "valid"):
            curve = [(getattr(point, field), point.value) for point in points if point.split == split]
            if curve:
                draw_curve(axes, curve, color[name], training=split == "train", continues=False)
        if name in papers:
            draw_reference(axes, papers[name], color=color[name])
    explain_curves(axes, color, {"training": (True, False), "validation": (False, False)})
    axes.set(title=task.title, xlabel="updates" if field == "updates" else "training (s)", ylabel=task.unit)
