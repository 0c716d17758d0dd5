"""Runs of an agent's training: the loop around the trainer, with a log and checkpoints."""

import json
import os
import sys
from statistics import mean
from time import perf_counter

import torch

from fb_fairseq.errors import UserError
from fb_fairseq.folders import lock_folder, start_run
from fb_fairseq.interruption import heeding_signals
from fb_fairseq.meaning import check_same_options
from fb_fairseq.papers.rl.log import LOG_FILE, truncate_log
from fb_fairseq.papers.rl.options import SIZES, AgentOptions, TrainingOptions
from fb_fairseq.papers.rl.trainer import Trainer
from fb_fairseq.tensor_files import load_file, save_file, using

CHECKPOINT_FILE = "checkpoint.pt"
SAVE_SECONDS = 120  # between checkpoints, at least
REQUIRED_KEYS = {"settings", "options", "agent", "world"}  # tell an agent's checkpoint from one of fairseq


def load_checkpoint(path: str) -> dict:
    """Read a checkpoint, its tensors on the CPU."""
    state = load_file(path)
    if not isinstance(state, dict) or not REQUIRED_KEYS <= set(state):
        raise UserError(f"{path}: not a checkpoint of an agent; give a {CHECKPOINT_FILE} of train, or another --out")
    return state


def fixed_options(options: dict, settings: dict) -> dict:
    """The options that must not change between runs, by name. The environment comes first: if it differs, that is the
    difference to report.
    """
    sizes = {**dict.fromkeys(SIZES), **(options["sizes"] or {})}  # those that are not given, too
    merged = {"environment": options["environment"], **sizes, **settings, **options}
    return {name: value for name, value in merged.items() if name not in ("observation", "actions", "sizes", "frames")}


def resume(trainer: Trainer, checkpoint: str) -> None:
    """Go on from a checkpoint, which must be of the same options but for ``frames``."""
    state = load_checkpoint(checkpoint)
    own = trainer.state_dict()
    with using(checkpoint):
        theirs, ours = (fixed_options(each["options"], each["settings"]) for each in (state, own))
        check_same_options(checkpoint, theirs, ours)
        trainer.load_state_dict(state)


def train(options: TrainingOptions, agent: AgentOptions, out: str, device: torch.device, log_interval: int) -> None:
    """Train an agent for ``options.frames`` frames. Resumes from ``out``/checkpoint.pt if it exists.

    Args:
        options: of training.
        agent: the architecture.
        out: folder of the checkpoint and the log.
        device: where to train.
        log_interval: blocks between log entries.

    Raises:
        Interrupted: after the block in which a signal comes, when it is saved.
    """
    trainer = Trainer(options, agent, device)
    checkpoint = os.path.join(out, CHECKPOINT_FILE)
    log = os.path.join(out, LOG_FILE)
    is_resumed = os.path.exists(checkpoint)
    if is_resumed:
        lock_folder("--out", out)  # before another run could write a newer checkpoint
        resume(trainer, checkpoint)
    start_run("--out", out, "rl", known=is_resumed)
    if trainer.frames >= options.frames:
        frames = f"{trainer.frames:,} frames of --frames {options.frames:,}"
        text = f"this run is finished: {frames}; nothing is trained or written (to go on, give more)"
        print(text, file=sys.stderr)
        return
    truncate_log(log, trainer.frames)
    logged_at = saved_at = perf_counter()
    logged_frames = trainer.frames
    frames_per_update = options.environments * options.block
    done = False
    with heeding_signals() as interruption:
        while not done:
            trainer.train_block()
            now = perf_counter()
            blocks = trainer.frames // frames_per_update
            is_last = trainer.frames >= options.frames
            done = is_last or bool(interruption.requested)
            if blocks % log_interval == 0 or is_last:
                write_entry(log, trainer, (trainer.frames - logged_frames) / (now - logged_at))
                logged_at = now
                logged_frames = trainer.frames
            if done or now - saved_at > SAVE_SECONDS:
                save_file(trainer.state_dict(), checkpoint)
                saved_at = now
    interruption.end_if_requested(blocks, -(-options.frames // frames_per_update))


def write_entry(log: str, trainer: Trainer, fps: float) -> None:
    """Add an entry to the log, and print it: the frames, ``fps`` in frames per second, and the mean reward of recent
    episodes if one has ended.
    """
    entry = {"frames": trainer.frames, "fps": round(fps, 1)}
    reward = ""
    if trainer.play.recent_rewards:
        entry["reward"] = mean(trainer.play.recent_rewards)
        reward = f", reward {entry['reward']:.3f}"
    with open(log, "a") as file:
        file.write(json.dumps(entry) + "\n")
    print(f"{trainer.frames:,} of {trainer.options.frames:,} frames{reward}, {fps:,.0f} frames/s", file=sys.stderr)
