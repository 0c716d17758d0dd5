"""Read learning curves from fairseq's logs: JSON (``--log-format json``) or TensorBoard (``--tensorboard-logdir``)."""

import json
import os
from typing import Dict, List, Tuple

from fb_fairseq.files import open_text

Curve = List[Tuple[float, float]]  # (update, value)
UPDATES = "num_updates"  # key of the x axis in fairseq's JSON logs


def read_log(path: str, metric: str) -> Dict[str, Curve]:
    """The curves of one metric, by tag (``train_inner``, ``train``, ``valid``, …); empty if it is not logged.

    Args:
        path: a JSON log, or a folder of TensorBoard logs.
        metric: its name without the tag, for example ``loss``.
    """
    return read_tensorboard(path, metric) if os.path.isdir(path) else read_json_log(path, metric)


def read_json_log(path: str, metric: str) -> Dict[str, Curve]:
    """The curves in a JSON log: the file of ``--log-file``, or saved terminal output.

    At the end of an epoch and after a validation fairseq logs its values with the tag as a prefix (``valid_loss``,
    ``valid_num_updates``); within an epoch (``train_inner``) without a prefix.
    """
    curves: Dict[str, Curve] = {}
    with open_text(path) as file:
        for line in file:
            try:
                values = json.loads(line[line.index("{") :])
            except ValueError:
                continue  # a line without values; the configuration is logged as a Python dict, which is not JSON
            for key in values:
                if key.endswith(UPDATES):
                    prefix = key[: -len(UPDATES)]
                    if prefix + metric in values:
                        point = float(values[key]), float(values[prefix + metric])
                        curves.setdefault(prefix[:-1] or "train_inner", []).append(point)
    return curves


def read_tensorboard(folder: str, metric: str) -> Dict[str, Curve]:
    """The curves in a folder of ``--tensorboard-logdir``, which has one subfolder per tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves = {}
    for tag in sorted(os.listdir(folder)):
        events = EventAccumulator(os.path.join(folder, tag)).Reload()
        if metric in events.Tags()["scalars"]:
            curves[tag] = [(event.step, event.value) for event in events.Scalars(metric)]
    return curves
