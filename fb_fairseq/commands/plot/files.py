"""Read what a run has left: learning curves and layer weights from logs, layer weights and adaptive spans from
checkpoints.
"""

import json
import math
import re
from collections.abc import Sequence

from fb_fairseq.commands.read_model import read_parameters
from fb_fairseq.errors import UserError
from fb_fairseq.files import open_text

Curve = list[tuple[float, float]]  # (update or time of training, value)
Curves = dict[str, Curve]  # of a run, by tag: train_inner, train, valid, …
UPDATES = "num_updates"  # key of the x axis in fairseq's logs
# A line of --log-format simple: within an epoch; or at its end or of a validation, whose split is named.
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
    if found["inner"]:
        return dict(value.split("=") for value in found["inner"].split(", "))
    prefix = found["split"] or "train"
    named = map(str.split, found["end"].split(" | "))
    return {f"{prefix}_{name}": value for name, value in named}


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
                wall = float(values.get("wall", last))
                before += last if wall < last else 0
                last = wall
                for key in values:
                    prefix = key.removesuffix(UPDATES)
                    if prefix != key and prefix + metric in values:
                        updates = float(values[key])
                        value = float(values[prefix + metric])
                        if math.isfinite(updates):
                            point = (before + wall) / SECONDS[x] if x in SECONDS else updates, value
                            curves.setdefault(prefix[:-1] or "train_inner", []).append(point)
            except (ValueError, TypeError, RecursionError):
                # Without values, or damaged. (The configuration is logged as a Python dict, which is not JSON.)
                continue
    return curves


def read_curves(path: str, metric: str, x: str) -> Curves:
    """The curves of a log that is to have the metric; see ``read_log``."""
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
    """The stages of a run one behind the other, whatever number their updates begin with.

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


def layer_weights(path: str) -> list[float]:
    """The shares of the embedding and of each layer in the feedback memory: softmax(w) (arXiv 2002.09402v3, Eq. 1)."""
    import torch

    logits = read_parameters(path).parameters.get("decoder.memory.layer_weights")
    if logits is None or logits.dim() != 1 or not logits.is_floating_point():
        raise UserError(f"--layer-weights {path}: has none that are learned; give one of --memory-composition weighted")
    return torch.softmax(logits.float(), 0).tolist()


def adaptive_spans(path: str) -> list[list[float]]:
    """The spans in steps by layer and head, ramp included. ``path``: a checkpoint or an exported folder."""
    from fb_fairseq.tensor_files import using

    trained = read_parameters(path)
    names = (f"decoder.layers.{l}.self_attn.adaptive_span.z" for l in range(len(trained.parameters)))
    learned = [trained.parameters[name].float().flatten() for name in names if name in trained.parameters]
    if not learned:
        raise UserError(f"--spans {path}: its spans are fixed; give a checkpoint of --adaptive-span")
    with using(path):
        S, ramp = (int(trained.options[name]) for name in ("attention_span", "adaptive_span_ramp"))
        return [(z * S + ramp).clamp(max=S).tolist() for z in learned]
