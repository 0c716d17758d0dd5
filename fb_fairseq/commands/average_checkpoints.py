"""``python -m fb_fairseq average-checkpoints``: the mean of a run's last checkpoints.

(fairseq's own script is not part of its package.) Vaswani et al. 2017 §6.1; Feedback Transformer v3 §4.2.1: "We average
the last 10 checkpoints".
"""

import argparse
import os
import re
from typing import Dict, List

import torch

from fb_fairseq.errors import UserError

BY_EPOCH = re.compile(r"checkpoint(\d+)\.pt")
BY_UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")


def last_checkpoints(folder: str, pattern, number: int) -> List[str]:
    """The checkpoints of the last ``number`` epochs or updates, oldest first.

    Raises:
        UserError: there are fewer.
    """
    found = {int(m[1]): name for name in os.listdir(folder) for m in [pattern.fullmatch(name)] if m}
    if len(found) < number:
        kind = "epoch" if pattern is BY_EPOCH else "update"
        raise UserError(f"{folder}: {len(found)} checkpoints by {kind} lie there, {number} are asked for; give fewer")
    return [os.path.join(folder, found[key]) for key in sorted(found)[-number:]]


def average(states: List[Dict[str, torch.Tensor]]) -> Dict[str, torch.Tensor]:
    """The mean of state dicts: floating tensors in their own type, summed in double precision; others of the last one.

    Tensors that share their memory (tied weights) are averaged once and go on to share it.

    Raises:
        UserError: the states are not of one model.
    """
    names = states[-1].keys()
    for state in states[:-1]:
        if state.keys() != names or any(state[name].shape != states[-1][name].shape for name in names):
            raise UserError("the checkpoints are not of one model: their parameters have other names or shapes")
    done: Dict[tuple, torch.Tensor] = {}
    result = {}
    for name, last in states[-1].items():
        place = (last.data_ptr(), last.shape, last.stride()) if last.numel() else name
        if place not in done:
            if last.is_floating_point():
                total = sum(state[name].double() for state in states)
                done[place] = (total / len(states)).to(last.dtype)
            else:
                done[place] = last
        result[name] = done[place]
    return result


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(prog="python -m fb_fairseq average-checkpoints", description=__doc__)
    parser.add_argument("--inputs", nargs="+", required=True, help="checkpoints, or one folder with an option below")
    parser.add_argument("--output", required=True, help="the averaged checkpoint")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--num-epoch-checkpoints", type=int, help="the last N of checkpoint<epoch>.pt")
    group.add_argument("--num-update-checkpoints", type=int, help="the last N of checkpoint_<epoch>_<update>.pt")
    args = parser.parse_args(argv)
    if not os.path.isdir(os.path.dirname(os.path.abspath(args.output))):
        parser.error(f"--output {args.output}: its folder does not exist; make it, or give another")
    number = args.num_epoch_checkpoints or args.num_update_checkpoints
    paths = args.inputs
    try:
        if number is not None:
            if len(paths) != 1 or not os.path.isdir(paths[0]) or number < 1:
                parser.error("--num-epoch-checkpoints and --num-update-checkpoints: give one folder, and 1 or more")
            paths = last_checkpoints(paths[0], BY_EPOCH if args.num_epoch_checkpoints else BY_UPDATE, number)
        write_average(paths, args.output)
    except UserError as error:
        parser.error(str(error))
    print(f"{args.output}: the mean of {', '.join(os.path.basename(path) for path in paths)}")


def write_average(paths: List[str], output: str) -> None:
    from fb_fairseq import patches  # noqa: F401  before fairseq is used

    states = []
    for path in paths:
        try:
            checkpoint = torch.load(path, map_location="cpu")
            states.append(checkpoint["model"])
        except OSError as error:
            raise UserError(f"--inputs {path}: {error.strerror}; give a checkpoint") from error
        except Exception as error:
            raise UserError(f"--inputs {path}: no whole checkpoint of fairseq ({type(error).__name__})") from error
    checkpoint["model"] = average(states)
    torch.save(checkpoint, output + ".tmp")
    os.replace(output + ".tmp", output)


if __name__ == "__main__":
    main()
