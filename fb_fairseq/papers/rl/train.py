"""The training loop: logging, checkpoints, resuming."""

import os
import sys
from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
import torch

from fb_fairseq.files import LOCK, check_own_folder, lock_folder
from fb_fairseq.papers.rl.log import LOG_FILE, append_entry, truncate_log
from fb_fairseq.papers.rl.options import AgentOptions, TrainingOptions
from fb_fairseq.papers.rl.trainer import CARRIED, CHECKPOINT_FILE, Trainer, load_checkpoint
from fb_fairseq.tensor_files import check_like, check_optimizer, save_file, using

SAVE_SECONDS = 120  # a checkpoint at least this often, so that an interruption costs little


def train(
    options: TrainingOptions,
    agent: AgentOptions,
    out: str,
    device: torch.device,
    log_interval: int = 20,
    save_interval: int = 200,
    loggers: Sequence[Callable[[dict], None]] = (),
) -> Trainer:
    """Train an agent for ``options.frames`` frames. Resumes from ``out``/checkpoint.pt if it exists."""
    trainer = Trainer(options, agent, device)
    check_own_folder("--out", out, LOCK)
    lock_folder("--out", out)
    checkpoint, log = os.path.join(out, CHECKPOINT_FILE), os.path.join(out, LOG_FILE)
    if os.path.exists(checkpoint):
        state, template = load_checkpoint(checkpoint), trainer.state_dict()
        with using(checkpoint):
            trainer.load_state_dict(state)
        check_optimizer(checkpoint, trainer.optimizer)
        for name in CARRIED:
            check_like(checkpoint, state[name], template[name], (name,))
        if trainer.frames >= options.frames:
            frames = f"{trainer.frames:,} frames of --frames {options.frames:,}"
            text = f"this run is finished: {frames}; nothing is trained or written (to go on, give more)"
            print(text, file=sys.stderr)
            return trainer
    truncate_log(log, trainer.frames)
    logged_at, logged_frames = perf_counter(), trainer.frames
    saved_at = perf_counter()
    while trainer.frames < options.frames:
        metrics = trainer.train_block()
        blocks = trainer.frames // (options.environments * options.block)
        done = trainer.frames >= options.frames
        if blocks % log_interval == 0 or done:
            fps = (trainer.frames - logged_frames) / (perf_counter() - logged_at)
            entry = _log_entry(trainer, fps, metrics)
            append_entry(log, entry)
            for logger in loggers:
                logger(entry)
            logged_at, logged_frames = perf_counter(), trainer.frames
        if blocks % save_interval == 0 or done or perf_counter() - saved_at > SAVE_SECONDS:
            save_file(trainer.state_dict(), checkpoint)
            saved_at = perf_counter()
    return trainer


def _log_entry(trainer: Trainer, fps: float, metrics: dict[str, float]) -> dict:
    """Frames, speed, reward and success of recent episodes, and the metrics of the last block."""
    entry = {"frames": trainer.frames, "fps": round(fps, 1)}
    if trainer.recent_rewards:
        rewards = np.array(trainer.recent_rewards)
        entry.update(reward=float(rewards.mean()), success=float((rewards > 0).mean()))
    entry.update({name: round(value, 5) for name, value in metrics.items()})
    return entry
