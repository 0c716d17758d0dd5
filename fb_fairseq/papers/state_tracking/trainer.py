"""Training on sequences that grow as soon as the model has learned those of their size, or on all sizes mixed."""

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from fb_fairseq.command_line import check_same_options
from fb_fairseq.errors import UserError
from fb_fairseq.files import start_run
from fb_fairseq.interruption import heeding_signals
from fb_fairseq.papers.state_tracking.architectures import ARCHITECTURES, Shape, build, fitted_inner, parameters
from fb_fairseq.papers.state_tracking.bodies import Tagger
from fb_fairseq.papers.state_tracking.problems import NONE, PROBLEMS, Sequences
from fb_fairseq.papers.toy_tasks.common import SeededRandom
from fb_fairseq.papers.toy_tasks.word_problem import GROUPS
from fb_fairseq.tensor_files import load_file, save_file, using

CHECKPOINT_FILE = "checkpoint.pt"
SAVE_SECONDS = 60  # a checkpoint at least this often
SAY_SECONDS = 10
WINDOW, LEARNED = 20, 0.95  # sequences grow when so many updates had this mean accuracy on the last label
CURRICULA = ("growing", "mixed")
WARMUP = 100  # updates
DECAY = 0.2  # the last part of training, in which the learning rate falls to 0


def option(default: Any, text: str, lowest: int | None = None) -> Any:
    """A field of ``Options``, with its help and its lowest value; other numbers have to be above 0."""
    return field(default=default, metadata={"help": text, "lowest": lowest})


@dataclass(frozen=True)
class Options:
    """What is trained, and how; as on the command line of ``state-tracking train``."""

    task: str = option("word_problem", ", ".join(PROBLEMS))
    group: str = option("A5", f"of word problems: {', '.join(GROUPS)}")
    symbols: int = option(256, "number of different symbols in recall", 4)
    model: str = option("feedback", ", ".join(ARCHITECTURES))
    memory_composition: str = option("weighted", "of the Feedback Transformer: weighted, average, previous, layer:2, …")
    layers: int = option(2, "number of layers", 1)
    width: int = option(64, "model width", 8)
    heads: int = option(2, "number of heads, where a model has some", 1)
    span: int = option(
        0, "how many steps back attention reaches; 0: in word problems --longest, but 8 for the Feedback Transformer; "
        "in the other tasks all steps of the longest tests", 0,
    )  # fmt: skip
    longest: int = option(
        32, "training sequences have up to so many elements (recall: pairs); tests go to 16 times as many (recall and "
        "arithmetic: 4 times)", 1,
    )  # fmt: skip
    curriculum: str = option(
        "growing", "growing: training sequences get longer as soon as the model is right; mixed: each update has one "
        "size of all up to --longest, drawn at random",
    )  # fmt: skip
    test_sequences: int = option(3000, "sequences of each size in tests", 1)
    updates: int = option(8000, "of training", 1)
    tokens: int = option(2048, "steps in an update", 1)
    lr: float = option(0.002, "learning rate of Adam")
    clip_norm: float = option(1.0, "gradients of a larger norm are scaled down to it")
    seed: int = option(1, "of the parameters and the data")

    @property
    def given(self) -> dict[str, Any]:
        """The task's options."""
        return dict(group=self.group, symbols=self.symbols)

    def shape(self, inner: int) -> Shape:
        """What the model is built from. Without ``--span``, attention reaches over whole sequences: in word problems
        over those in training, or for the Feedback Transformer over 8 steps; in the other tasks over those in tests."""
        problem = PROBLEMS[self.task]
        if problem.by_position:
            whole = 8 if self.model == "feedback" else self.longest
        else:
            whole = problem.steps(4 * self.longest)
        span = self.span or whole
        return Shape(self.layers, self.width, self.heads, inner, span, self.memory_composition)


def new_model(options: Options, sequences: Sequences) -> Tagger:
    """The model, with as many parameters in its layers as a Transformer of ``--layers`` and ``--width``."""
    architecture, wide = ARCHITECTURES[options.model], 4 * options.width
    wanted = parameters(build(ARCHITECTURES["transformer"], options.shape(wide)))
    inner = fitted_inner(architecture, options.shape(wide), wanted)
    torch.manual_seed(options.seed)
    body = build(architecture, options.shape(inner))
    return Tagger(body, sequences.symbols, sequences.classes, options.width)


@dataclass
class Trainer:
    """A model in training."""

    options: Options  # what is trained
    device: torch.device  # where
    update: int = 0  # number of updates so far
    size: int = 0  # of the sequences now, or of the longest
    seconds: float = 0.0  # that training has taken
    recent: deque = field(default_factory=lambda: deque(maxlen=WINDOW))

    def __post_init__(self):
        self.sequences = Sequences(self.options.task, self.options.given, self.options.seed)
        self.problem = self.sequences.problem
        self.size = self.problem.smallest if self.options.curriculum == "growing" else self.options.longest
        self.model = new_model(self.options, self.sequences).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.options.lr)

    def train(self, out: str, say: Callable[[str], None], minutes: float | None = None) -> None:
        """Train until ``options.updates``, or for some ``minutes``. Resumes from ``out``/checkpoint.pt if it exists.

        Raises ``Interrupted`` after the update in which a signal comes, when it is saved."""
        path = os.path.join(out, CHECKPOINT_FILE)
        is_resumed = os.path.exists(path)
        if is_resumed:
            self.resume(path)
        start_run("--out", out, "state-tracking", known=is_resumed)
        saved = said = last = time.monotonic()
        end = float("inf") if minutes is None else last + 60 * minutes
        done = self.update >= self.options.updates
        with heeding_signals() as interruption:
            while not done:
                loss, accuracy = self.train_update()
                now = time.monotonic()
                self.seconds += now - last
                last = now
                done = self.update == self.options.updates or last >= end or bool(interruption.requested)
                if self.update % 500 == 0 or done or now - said > SAY_SECONDS:
                    said = now
                    reached = f"update {self.update:,} of {self.options.updates:,}: {self.problem.size} {self.size}"
                    say(f"{reached}, loss {loss:.3f}, {accuracy:.1%} right")
                if done or now - saved > SAVE_SECONDS:
                    save_file(self.state_dict(), path)
                    saved = now
        interruption.end_if_requested(self.update, self.options.updates)

    def train_update(self):
        """Make one update. Returns the loss in nats, and the accuracy on the last label of the sequences."""
        options, size = self.options, self.size
        if options.curriculum == "mixed":
            size = SeededRandom(options.seed, "sizes", self.update).randint(self.problem.smallest, options.longest)
        sequences = max(1, options.tokens // self.problem.steps(size))
        inputs, labels = (x.to(self.device) for x in self.sequences.draw("train", self.update, size, sequences))
        warmup = min(1.0, (self.update + 1) / WARMUP)
        decay = min(1.0, (options.updates - self.update) / (DECAY * options.updates))
        for group in self.optimizer.param_groups:
            group["lr"] = options.lr * warmup * decay
        self.model.train()
        logits = self.model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NONE)
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
        check_same_options(path, state["options"], asdict(self.options))
        with using(path):
            self.model.load_state_dict(state["state_tracking"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.update, self.size, self.seconds = state["update"], state["size"], state["seconds"]
            self.recent.extend(state["recent"])


def last_accuracy(logits_BLC: torch.Tensor, labels_BL: torch.Tensor) -> float:
    """The part of sequences whose last label is right."""
    places_BL = torch.arange(labels_BL.shape[1], device=labels_BL.device) * (labels_BL != NONE)
    last_B = places_BL.argmax(1)
    rows_B = torch.arange(len(labels_BL), device=labels_BL.device)
    right_B = logits_BLC[rows_B, last_B].argmax(-1) == labels_BL[rows_B, last_B]
    return right_B.float().mean().item()
