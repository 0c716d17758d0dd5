"""The training log, ``log.jsonl``: one JSON object per line, with the number of frames so far and the metrics; and
learning curves.
"""

import json
import os

from fb_fairseq.drawing.figure import plain_text
from fb_fairseq.drawing.marks import draw_band, explain_range
from fb_fairseq.drawing.models import model_name, styles
from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write, open_text

LOG_FILE = "log.jsonl"
Curve = list[tuple[int, float]]  # (frames, value)
MILLION = 10**6


def read_entries(path: str) -> list[dict]:
    """The entries of a log. An incomplete last line, from a run that was interrupted while writing, is skipped."""
    with open_text(path) as file:
        try:
            entries = [json.loads(line) for line in file if line.endswith("\n")]
            if not all("frames" in entry for entry in entries):
                raise ValueError("an entry without frames")
        except (TypeError, ValueError) as error:
            raise UserError(f"{path}: is damaged ({error}); give another folder") from None
    return entries


def truncate_log(path: str, frames: int) -> None:
    """Drop the entries after ``frames``, where training resumes. Creates the log if there is none."""
    kept = [entry for entry in read_entries(path) if entry["frames"] <= frames] if os.path.exists(path) else []
    with atomic_write(path) as temporary, open(temporary, "w") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in kept)


def read_curve(folder: str) -> Curve:
    """The reward of the run in ``folder``, as (frames, value). There is none before the first episode has ended."""
    path = os.path.join(folder, LOG_FILE)
    if not os.path.isfile(path):
        raise UserError(f"{folder}: contains no {LOG_FILE}; give an --out folder of train")
    return [(entry["frames"], entry["reward"]) for entry in read_entries(path) if "reward" in entry]


def read_curves(runs: list[str]) -> dict[str, list[Curve]]:
    """Read the curves of runs, each given as NAME=FOLDER, by name."""
    curves: dict[str, list[Curve]] = {}
    for run in runs:
        name, _, folder = run.partition("=")
        if not folder:
            raise UserError(f"{run}: gives no folder; give NAME=FOLDER")
        curve = read_curve(folder)
        if not curve:
            raise UserError(f"{name}: no episode has ended yet; give a run that was trained for longer")
        curves.setdefault(name, []).append(curve)
    return curves


def draw_rewards(axes, curves: dict[str, list[Curve]]) -> None:
    """Draw the mean and range of the curves of each name, at the frames that all of them contain.

    Args:
        axes: matplotlib's, to draw on.
        curves: by name, the rewards of each seed by frames.
    """
    style = styles(curves)
    for name, seeds in curves.items():
        values = [dict(curve) for curve in seeds]
        frames = sorted(set.intersection(*map(set, values)))
        if not frames:
            raise UserError(f"{name}: no frames in common; give runs of equal --environments, --block, --log-interval")
        rewards = [[curve[frame] for curve in values] for frame in frames]
        draw_band(axes, [frame / MILLION for frame in frames], rewards, plain_text(model_name(name)), *style[name])
    explain_range(axes, curves.values())
    axes.set_xlabel("frames of training (millions)")
    axes.set_ylabel("reward per episode")
