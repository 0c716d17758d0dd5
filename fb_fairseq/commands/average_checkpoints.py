"""Average the parameters of a run's last checkpoints.

    fb-fairseq average-checkpoints --inputs checkpoints --num-epoch-checkpoints 10 --output averaged.pt
    fb-fairseq average-checkpoints --inputs a.pt b.pt c.pt --output averaged.pt

Everything but the parameters is taken from the last checkpoint. See Vaswani et al. 2017, §6.1; the Feedback
Transformer's translation results use it too (arXiv 2002.09402v3, §4.2.1: "We average the last 10 checkpoints").
fairseq's own script is not part of its package.
"""

import os
import re

from torch import Tensor

from fb_fairseq.checksums import DICTIONARIES, trained_dictionaries
from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.errors import UserError, flag
from fb_fairseq.facts import FACTS, facts_of_average, facts_of_checkpoint
from fb_fairseq.files import WRITER, check_output_file
from fb_fairseq.meaning import check_same_meaning
from fb_fairseq.tensor_files import NEW_TRAINING, load_checkpoint, model_options, save_file, using

NAME = "average-checkpoints"
# The file names of fairseq's checkpoints, with their number, by the option that chooses the last of them.
PATTERNS = {
    "num_epoch_checkpoints": r"checkpoint(\d+)\.pt",
    "num_update_checkpoints": r"checkpoint_\d+_(\d+)\.pt",
}


def last_checkpoints(folder: str, option: str, number: int) -> list[str]:
    """The paths of the last checkpoints in a folder, oldest first.

    Args:
        option: one of ``PATTERNS``.
        number: how many.
    """
    matches = [match for name in os.listdir(folder) if (match := re.fullmatch(PATTERNS[option], name))]
    if len(matches) < number:
        raise UserError(f"{flag(option)} {number}: {folder} has {len(matches)}; give fewer, or another folder")
    return [os.path.join(folder, match[0]) for match in sorted(matches, key=lambda match: int(match[1]))[-number:]]


def average(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Average state dicts.

    Floating-point tensors are summed in double precision, and keep their own type; other tensors are those of the last
    state. Tensors that share memory in the last state (tied weights) share memory in the result.
    """
    names = states[-1].keys()
    for state in states[:-1]:
        if state.keys() != names or any(state[name].shape != states[-1][name].shape for name in names):
            raise UserError("--inputs: the names or shapes of parameters differ; give checkpoints of one model")
    averaged: dict[object, Tensor] = {}  # by where the tensor lies in memory
    result = {}
    for name, last in states[-1].items():
        place = (last.data_ptr(), last.shape, last.stride()) if last.numel() else name
        if place not in averaged:
            if last.is_floating_point():
                total = sum(state[name].double() for state in states)
                averaged[place] = (total / len(states)).to(last.dtype)
            else:
                averaged[place] = last
        result[name] = averaged[place]
    return result


def write_average(paths: list[str], output: str) -> None:
    """Write the average of checkpoints to ``output``, with the options of the last one.

    The figures of a checkpoint (its validation, the best one, the optimizer's state) are not those of the average, and
    are left out: training that starts from it begins anew.
    """
    from fb_fairseq.patches.meaning import with_architecture

    states = []
    facts = []
    dictionaries = options = None
    for path in paths:  # of the earlier checkpoints only the models stay in memory, not the optimizers' states
        checkpoint = load_checkpoint(path)
        its_options = with_architecture(model_options(checkpoint))
        options = options or its_options
        check_same_meaning(f"--inputs {path}", its_options, options, "give one run's")
        states.append(checkpoint["model"])
        with using(path):
            facts.append(facts_of_checkpoint(checkpoint))
        its_dictionaries = trained_dictionaries(checkpoint) or {}
        if dictionaries not in (None, its_dictionaries):
            raise UserError(f"--inputs {path}: was trained with other dictionaries than {paths[0]}; give one run's")
        dictionaries = its_dictionaries
    checkpoint.pop("last_optimizer_state", None)
    checkpoint.pop(WRITER, None)
    checkpoint.update({FACTS: facts_of_average(facts), "model": average(states)})
    checkpoint["extra_state"] = {**NEW_TRAINING, DICTIONARIES: dictionaries}
    save_file({WRITER: NAME, **checkpoint}, output)


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser(NAME, description=__doc__)
    parser.add_argument(
        "--inputs",
        nargs="+",
        required=True,
        metavar="PATH",
        help="checkpoints; or the folder of a run, with --num-epoch-checkpoints or --num-update-checkpoints",
    )
    parser.add_argument("--output", required=True, metavar="FILE.pt", help="averaged checkpoint to write")
    add_overwrite(parser)
    last = parser.add_mutually_exclusive_group()
    last.add_argument("--num-epoch-checkpoints", type=int, metavar="N", help="average the last N checkpoint<epoch>.pt")
    last.add_argument("--num-update-checkpoints", type=int, metavar="N", help="last N checkpoint_<epoch>_<update>.pt")
    return parser


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    parser.check_least(args, num_epoch_checkpoints=1, num_update_checkpoints=1)
    paths = args.inputs
    with parser.one_line_errors():
        check_output_file("--output", args.output, NAME, args.overwrite)
        for option in PATTERNS:
            number = getattr(args, option)
            if number is not None:
                if len(paths) != 1 or not os.path.isdir(paths[0]):
                    parser.error(f"{flag(option)} {number}: give one folder with --inputs")
                paths = last_checkpoints(paths[0], option, number)
        write_average(paths, args.output)
    print(f"{args.output}: the average of {', '.join(os.path.basename(path) for path in paths)}")
