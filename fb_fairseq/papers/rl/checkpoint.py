"""Checkpoints: dicts of plain values and tensors, written by ``Trainer.state_dict``."""

from fb_fairseq.checkpoint_contents import check_parameters
from fb_fairseq.errors import UserError, flag
from fb_fairseq.tensor_files import load_file

CHECKPOINT_FILE = "checkpoint.pt"
# What a block begins with. (Its shapes depend on the options; those of the memory are checked by the layers.)
CARRIED = ("frames", "age", "previous", "world", "observation", "starts", "rewards")
REQUIRED_KEYS = {"settings", "options", "agent", "world"}  # tell an agent's checkpoint from one of fairseq


def load_checkpoint(path: str) -> dict:
    """Read a checkpoint, its tensors on the CPU."""
    state = load_file(path)
    if not isinstance(state, dict) or not REQUIRED_KEYS <= set(state):
        raise UserError(f"{path}: not a checkpoint of an agent; give a {CHECKPOINT_FILE} of train, or another --out")
    check_parameters(path, state["agent"])
    return state


def check_same_options(saved: dict, current: dict) -> None:
    """Check that training with the current options may resume from a checkpoint.

    Args:
        saved: the checkpoint, or its "options" and "settings".
        current: "options" and "settings" of the current run.
    """
    theirs, ours = (_fixed_options(state["options"], state["settings"]) for state in (saved, current))
    for name, value in ours.items():
        if value != theirs.get(name):
            made, given = f"{flag(name)} {theirs.get(name)}", value
            if isinstance(value, bool):  # a pair of options
                made, given = (flag(name if on else f"no_{name}") for on in (not value, value))
            raise UserError(
                f"the checkpoint was made with {made}, not {given}; give another --out, or the same options"
            )


def _fixed_options(options: dict, settings: dict) -> dict:
    """The options that must not change between runs, by name. The environment comes first: if it differs, that is the
    difference to report."""
    agent = {name: value for name, value in settings.items() if name not in ("observation", "actions")}
    merged = {"environment": options["environment"], **(options["sizes"] or {}), **agent, **options}
    return {name: value for name, value in merged.items() if name not in ("sizes", "frames")}
