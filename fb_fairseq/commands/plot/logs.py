"""Learning curves in the logs of training."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from fb_fairseq.errors import UserError
from fb_fairseq.files import open_text

Curve = list[tuple[float, float]]  # (update or time of training, value)
Curves = dict[str, Curve]  # of a run, by tag: train_inner, train, valid, …
UPDATES = "num_updates"  # key of the x axis in fairseq's logs
# A line of --log-format simple. Within an epoch:
#     epoch 001:     10 / 20 loss=2.1, ppl=4.3, …
# At its end, or of a validation, whose split is named:
#     epoch 001 | loss 2.1 | ppl 4.3 | …
#     epoch 001 | valid on 'valid' subset | loss 2.1 | …
SIMPLE = re.compile(r"epoch \d+(?::\s+\d+ / \d+ (?P<inner>.*)| \| (?:\w+ on '(?P<split>.*?)' subset \| )?(?P<end>.*))")
SECONDS = {"minutes": 60, "hours": 3600}  # of the x axes of time
X_AXES = ("updates", *SECONDS)


def values_of(line: str) -> dict[str, str]:
    """The values in a line of a log, by their names in JSON. ``line``: of --log-format json or simple.

    Raises:
        ValueError: it has none.
    """
    if "{" in line:
        return json.loads(line[line.index("{") :])
    found = SIMPLE.search(line)
    if found is None:
        raise ValueError
    if found["inner"] is not None:
        return dict(value.split("=") for value in found["inner"].split(", "))
    prefix = found["split"] or "train"
    named = map(str.split, found["end"].split(" | "))
    return {f"{prefix}_{name}": value for name, value in named}


def points(values: Mapping[str, str], metric: str) -> Iterator[tuple[str, float, float]]:
    """The tag, updates and value of a metric in the values of a line, for each tag that has it."""
    for key in values:
        prefix = key.removesuffix(UPDATES)
        if prefix != key and prefix + metric in values:
            updates = float(values[key])
            if math.isfinite(updates):
                yield prefix[:-1] or "train_inner", updates, float(values[prefix + metric])


def read_log(path: str, metric: str, x: str = "updates") -> Curves:
    """The curves of one metric; empty if it is not logged.

    At the end of an epoch and after a validation fairseq logs its values with the tag as a prefix (``valid_loss``,
    ``valid_num_updates``); within an epoch (``train_inner``) without a prefix. Damaged lines are left out.

    Args:
        path: the file of ``--log-file``, or saved terminal output.
        metric: its name without the tag, for example ``loss``.
        x: one of ``X_AXES``.
    """
    curves: Curves = {}
    before = last = 0.0  # seconds of training: ``wall`` counts those since the last restart
    with open_text(path) as file:
        for line in file:
            try:
                values = values_of(line)
                wall = float(values.get("wall", values.get("train_wall", last)))  # (the second one at an epoch's end)
                found = list(points(values, metric))
            except (ValueError, TypeError, OverflowError, RecursionError):
                # Without values, or damaged. (The configuration is logged as a Python dict, which is not JSON.)
                continue
            if wall < last:
                before += last
            last = wall
            for tag, updates, value in found:
                at = (before + wall) / SECONDS[x] if x in SECONDS else updates
                curves.setdefault(tag, []).append((at, value))
    return curves


def read_curves(path: str, metric: str, x: str) -> Curves:
    """The curves of a log, which must contain the metric; see ``read_log``."""
    curves = read_log(path, metric, x)
    if not curves and not read_log(path, UPDATES):
        raise UserError(f"--curves {path}: has no line of a training; give what fairseq-train printed (no tqdm bar)")
    if not curves:
        raise UserError(f"--curves {path}: {metric} is not logged there; name another metric with --metric")
    return curves


def read_layer_weights(path: str) -> list[Curve]:
    """The curves of Eq. 1's weights in validation: the embedding's, then each layer's. If the log has several
    validation splits, the first one's are read: they are the same.

    Args:
        path: the log of a training, with validation.
    """
    layers: list[Curve] = []
    while curves := read_log(path, f"layer_weight_{len(layers)}"):
        layers.append(next(iter(curves.values())))
    if not layers:
        raise UserError(
            f"--layer-weights-over-training {path}: no layer weights are logged there; give the log of a run with "
            "--memory-composition weighted, --criterion lm_loss and validation"
        )
    return layers


def continued(stages: Sequence[Curves]) -> list[Curves]:
    """The curves of consecutive stages, shifted so that each stage begins where the one before ends.

    ``stages``: the curves of each stage, such as training and fine-tuning; not empty.
    """
    moved: list[Curves] = []
    end = 0.0
    for curves in stages:
        xs = sorted({x for curve in curves.values() for x, _ in curve})
        shift = 0.0
        if moved:  # the first point is as far behind the end as it is from the second one
            step = xs[1] - xs[0] if len(xs) > 1 else 1
            shift = end + step - xs[0]
        moved.append({tag: [(x + shift, y) for x, y in curve] for tag, curve in curves.items()})
        end = xs[-1] + shift
    return moved
