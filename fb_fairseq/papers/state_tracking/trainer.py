"""Training on sequences that grow as soon as the model has learned those of their size, or on all sizes mixed."""

import math
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F

from fb_fairseq.errors import UserError
from fb_fairseq.folders import lock_folder, start_run
from fb_fairseq.interruption import heeding_signals
from fb_fairseq.meaning import check_same_options
from fb_fairseq.papers.state_tracking.architectures import ARCHITECTURES, fitted_inner, parameters
from fb_fairseq.papers.state_tracking.bodies import Tagger
from fb_fairseq.papers.state_tracking.options import Options
from fb_fairseq.papers.state_tracking.problems import NO_TARGET, Sequences
from fb_fairseq.papers.toy_tasks.common import SeededRandom
from fb_fairseq.tensor_files import load_file, save_file, using

CHECKPOINT_FILE, RESULT_FILE = "checkpoint.pt", "result.json"
SAVE_SECONDS = 60  # between checkpoints, at least
SAY_SECONDS = 10  # between lines about how far training is, at least
WINDOW, LEARNED = 20, 0.95  # sequences grow when so many updates had this mean accuracy on the last label
WARMUP = 100  # updates
DECAY = 0.2  # the last part of training, in which the learning rate falls to 0


def new_model(options: Options, sequences: Sequences) -> Tagger:
    """The model, with as many parameters in its layers as a Transformer of ``--layers`` and ``--width``."""
    architecture = ARCHITECTURES[options.model]
    wide = 4 * options.width
    wanted = parameters(ARCHITECTURES["transformer"].build(options.shape(wide)))
    inner = fitted_inner(architecture, options.shape(wide), wanted)
    torch.manual_seed(options.seed)
    body = architecture.build(options.shape(inner))
    return Tagger(body, sequences.symbols, sequences.classes, options.width)


class Trainer:
    """A model in training.

    Args:
        options: what is trained.
        device: where.

    Attributes:
        update: number of updates so far.
        size: of the sequences now, or of the longest.
        seconds: that training has taken.
        recent: accuracy of the last updates.
        sequences, growth: what is learned: the sequences of the task, and how they grow.
        model, optimizer: what learns.
    """

    def __init__(self, options: Options, device: torch.device):
        self.options, self.device = options, device
        self.update, self.seconds = 0, 0.0
        self.recent: deque[float] = deque(maxlen=WINDOW)
        self.sequences = Sequences(options.task, options.given, options.seed)
        self.growth = self.sequences.growth
        self.size = self.growth.smallest if options.curriculum == "growing" else options.longest
        self.model = new_model(options, self.sequences).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options.lr)

    def train(self, out: str, say: Callable[[str], None], minutes: float | None = None) -> None:
        """Train until ``options.updates``.

        Args:
            out: folder of checkpoint.pt, from which training resumes if it exists.
            say: takes lines about how far it is.
            minutes: at most so long.

        Raises:
            Interrupted: after the update in which a signal comes, when it is saved.
        """
        path = os.path.join(out, CHECKPOINT_FILE)
        is_resumed = os.path.exists(path)
        if is_resumed:
            lock_folder("--out", out)  # before another run could write a newer checkpoint
            self.resume(path)
        start_run("--out", out, "state-tracking", known=is_resumed)
        begin, before = time.monotonic(), self.seconds
        limit = float("inf") if minutes is None else 60 * minutes
        saved = said = 0.0  # after so many seconds of this run
        done = self.update >= self.options.updates
        with heeding_signals() as interruption:
            while not done:
                loss, accuracy = self.train_update()
                now = time.monotonic() - begin
                self.seconds = before + now
                done = self.update == self.options.updates or now >= limit or bool(interruption.requested)
                # (The loss is that before the update.)
                if not math.isfinite(loss) or done and not all(x.isfinite().all() for x in self.model.parameters()):
                    reached = f"--lr {self.options.lr:g}: training has diverged at update {self.update}"
                    raise UserError(f"{reached}; lower it, with another --out")
                if done or now - said > SAY_SECONDS:
                    said = now
                    reached = f"update {self.update:,} of {self.options.updates:,}: {self.growth.size} {self.size}"
                    say(f"{reached}, loss {loss:.3f}, {accuracy:.1%} right")
                if done or now - saved > SAVE_SECONDS:
                    save_file(self.state_dict(), path)
                    saved = now
        interruption.end_if_requested(self.update, self.options.updates)

    def train_update(self) -> tuple[float, float]:
        """Make one update. Returns the loss in nats, and the accuracy on the last label of the sequences."""
        options, size = self.options, self.size
        if options.curriculum == "mixed":
            size = SeededRandom(options.seed, "sizes", self.update).randint(self.growth.smallest, options.longest)
        sequences = max(1, options.tokens // self.growth.steps(size))
        inputs, labels = (x.to(self.device) for x in self.sequences.draw("train", self.update, size, sequences))
        warmup = min(1.0, (self.update + 1) / WARMUP)
        decay = min(1.0, (options.updates - self.update) / (DECAY * options.updates))
        for group in self.optimizer.param_groups:
            group["lr"] = options.lr * warmup * decay
        self.model.train()
        logits = self.model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NO_TARGET)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), options.clip_norm)
        self.optimizer.step()
        self.model.body.clamp()
        self.update += 1
        accuracy = last_accuracy(logits.detach(), labels)
        self.recent.append(accuracy)
        if len(self.recent) == WINDOW and sum(self.recent) >= LEARNED * WINDOW and self.size < options.longest:
            self.size = min(options.longest, self.size + max(1, self.size // 8))
            self.recent.clear()
        return loss.item(), accuracy

    def state_dict(self) -> dict[str, Any]:
        """The checkpoint."""
        return {
            "options": asdict(self.options),
            "state_tracking": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "update": self.update,
            "size": self.size,
            "seconds": self.seconds,
            "recent": list(self.recent),
        }

    def resume(self, path: str) -> None:
        """Go on from a checkpoint."""
        state = load_file(path)
        if not isinstance(state, dict) or "state_tracking" not in state:
            raise UserError(f"{path}: not a checkpoint of state-tracking; give another --out")
        with using(path):
            check_same_options(path, state["options"], asdict(self.options))
            self.model.load_state_dict(state["state_tracking"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.update = state["update"]
            self.size = state["size"]
            self.seconds = state["seconds"]
            self.recent.extend(state["recent"])


def last_accuracy(logits_BLC: torch.Tensor, labels_BL: torch.Tensor) -> float:
    """The part of sequences whose last label is right."""
    places_BL = torch.arange(labels_BL.shape[1], device=labels_BL.device) * (labels_BL != NO_TARGET)
    last_B = places_BL.argmax(1)
    rows_B = torch.arange(len(labels_BL), device=labels_BL.device)
    right_B = logits_BLC[rows_B, last_B].argmax(-1) == labels_BL[rows_B, last_B]
    return right_B.float().mean().item()
