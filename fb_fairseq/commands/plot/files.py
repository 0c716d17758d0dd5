"""Read what a run has left: learning curves and layer weights from logs, layer weights and adaptive spans from
checkpoints."""

import json
import math
import os
import re
from typing import NamedTuple

from fb_fairseq.errors import UserError
from fb_fairseq.files import open_text

Curve = list[tuple[float, float]]  # (update or hours of training, value)
UPDATES = "num_updates"  # key of the x axis in fairseq's logs
# A line of --log-format simple: within an epoch; or at its end or of a validation, whose split is named.
SIMPLE = re.compile(r"epoch \d+(?::\s+\d+ / \d+ (?P<inner>.*)| \| (?:\w+ on '(?P<split>.*?)' subset \| )?(?P<end>.*))")
X_AXES = ("updates", "hours")


class NamedCurves(NamedTuple):
    """Curves of a run, by tag."""

    name: str
    curves: dict[str, Curve]
    continues: bool = False  # whether the run before it of the same name led to this one


def read_log(path: str, metric: str, x: str = "updates") -> dict[str, Curve]:
    """The curves of one metric, by tag (``train_inner``, ``train``, ``valid``, …); empty if it is not logged.

    Args:
        path: what fairseq printed, or a folder of TensorBoard logs.
        metric: its name without the tag, for example ``loss``.
        x: one of ``X_AXES``."""
    if not os.path.isdir(path):
        return read_log_file(path, metric, x)
    if x == "hours":
        raise UserError(f"--x hours: {path} has no time of training; give a log of --log-format simple or json")
    return read_tensorboard(path, metric)


def read_layer_weights(path: str) -> list[Curve]:
    """The curves of Eq. 1's weights in validation: the embedding's, then each layer's; empty if they are not logged.

    Args:
        path: see ``read_log``. If the log has several validation splits, the first one's are read: they are the same.
    """
    layers: list[Curve] = []
    while True:
        curves = read_log(path, f"layer_weight_{len(layers)}")
        if not curves:
            return layers
        layers.append(next(iter(curves.values())))


class TrainingTime:
    """Sums up the time of training over restarts: fairseq's ``wall`` counts the seconds since the last one."""

    def __init__(self):
        self.before = self.last = 0.0

    def hours(self, values: dict[str, str]) -> float:
        """The hours until the newest of the values that are logged; call it with each line's."""
        wall = float(values.get("wall", self.last))
        if wall < self.last:
            self.before += self.last
        self.last = wall
        return (self.before + wall) / 3600


def values_of(line: str) -> dict[str, str]:
    """The values in a line of a log, by their names in JSON.

    Raises:
        ValueError: it has none."""
    if "{" in line:
        return json.loads(line[line.index("{") :])
    found = SIMPLE.search(line)
    if found is None:
        raise ValueError
    if found["inner"]:
        return dict(value.split("=") for value in found["inner"].split(", "))
    prefix = found["split"] or "train"
    return {f"{prefix}_{name}": value for name, value in (value.split() for value in found["end"].split(" | "))}


def read_log_file(path: str, metric: str, x: str = "updates") -> dict[str, Curve]:
    """The curves in the file of ``--log-file``, or in saved terminal output.

    At the end of an epoch and after a validation fairseq logs its values with the tag as a prefix (``valid_loss``,
    ``valid_num_updates``); within an epoch (``train_inner``) without a prefix. Damaged lines are left out."""
    curves: dict[str, Curve] = {}
    time = TrainingTime()
    with open_text(path) as file:
        for line in file:
            try:
                values = values_of(line)
                hours = time.hours(values)
                for prefix in (key[: -len(UPDATES)] for key in values if key.endswith(UPDATES)):
                    if prefix + metric in values:
                        updates, value = float(values[prefix + UPDATES]), float(values[prefix + metric])
                        if math.isfinite(updates):
                            point = hours if x == "hours" else updates, value
                            curves.setdefault(prefix[:-1] or "train_inner", []).append(point)
            except (ValueError, TypeError, RecursionError):
                # Without values, or damaged. (The configuration is logged as a Python dict, which is not JSON.)
                continue
    return curves


def read_tensorboard(folder: str, metric: str) -> dict[str, Curve]:
    """The curves in a folder of ``--tensorboard-logdir``, which has one subfolder per tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves = {}
    for tag in sorted(os.listdir(folder)):
        events = EventAccumulator(os.path.join(folder, tag)).Reload()
        if metric in events.Tags()["scalars"]:
            curves[tag] = [(event.step, event.value) for event in events.Scalars(metric)]
    return curves


def continued(runs: list[NamedCurves]) -> list[NamedCurves]:
    """Move runs that continue an earlier one of the same name behind it, whatever number their updates begin with.
    ``runs``: those without a name continue none."""
    ends: dict[str, float] = {}
    result = []
    for name, curves, _ in runs:
        continues = bool(name) and name in ends
        updates = sorted({update for curve in curves.values() for update, _ in curve})
        shift = 0.0
        if continues:
            shift = ends[name] + (updates[1] - updates[0] if len(updates) > 1 else 1) - updates[0]
        moved = {tag: [(update + shift, value) for update, value in curve] for tag, curve in curves.items()}
        ends[name] = updates[-1] + shift
        result.append(NamedCurves(name, moved, continues))
    return result


def load_checkpoint(path: str) -> dict:
    """The content of a checkpoint, with fairseq's patches applied before (see ``tensor_files``)."""
    from fb_fairseq import patches, tensor_files  # noqa: F401  patches: the safe globals

    return tensor_files.load_checkpoint(path)


def model_options(saved: dict) -> dict:
    """The options of a checkpoint's model by name."""
    options = saved["cfg"]["model"]
    return options if isinstance(options, dict) else vars(options)  # a Namespace


def layer_weights(path: str) -> list[float]:
    """The shares of the embedding and of each layer in the feedback memory: softmax(w) (arXiv 2002.09402v3, Eq. 1)."""
    import torch

    logits = load_checkpoint(path)["model"].get("decoder.memory.layer_weights")
    if logits is None or logits.dim() != 1 or not logits.is_floating_point():
        raise UserError(f"--layer-weights {path}: has none that are learned; give one of --memory-composition weighted")
    return torch.softmax(logits.float(), 0).tolist()


def adaptive_spans(path: str) -> list[list[float]]:
    """The spans in steps by layer and head, ramp included."""
    from fb_fairseq.tensor_files import using

    saved = load_checkpoint(path)
    model, learned = saved["model"], []
    while f"decoder.layers.{len(learned)}.self_attn.adaptive_span.z" in model:
        learned.append(model[f"decoder.layers.{len(learned)}.self_attn.adaptive_span.z"].float().flatten())
    if not learned:
        raise UserError(f"--spans {path}: its spans are fixed; give a checkpoint of --adaptive-span")
    with using(path):
        options = model_options(saved)
        S, ramp = int(options["attention_span"]), int(options["adaptive_span_ramp"])
        return [(z * S + ramp).clamp(max=S).tolist() for z in learned]
