"""Recipes that train language models on streams of text: the steps prepare, train, finetune, evaluate and generate."""

import argparse
import glob
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner import results, sweep
from fb_fairseq.papers.runner.data import checksum
from fb_fairseq.papers.runner.options import RecipeParser, learning_rate, seeds_of, word_list
from fb_fairseq.papers.runner.settings import Model, Scale, Training, resolved, words
from fb_fairseq.papers.runner.shell import Shell, read
from fb_fairseq.papers.runner.sweep import Call, Experiment
from fb_fairseq.papers.runner.training import draw_curves

ARCHITECTURES = ("feedback_transformer_lm", "relative_transformer_lm", "all_attention_lm", "streaming_lstm_lm")
BITS = re.compile(r"Loss \(base 2\): ([\d.]+),")
TOKENS = re.compile(r"Evaluated ([\d,]+) tokens")
FINETUNED = "-finetuned"


@dataclass(frozen=True)
class ModelRun(sweep.Run):
    """One model to train, with everything that it depends on. Its values are model, layers (None: the architecture's),
    seed and lr; its options make up the model."""

    described: Model = None
    training: Training = None

    @property
    def finetuned(self) -> str:
        """The path of its fine-tuning."""
        return f"{self.path}{FINETUNED}"

    def beside(self, model: str, end: str = "") -> str:
        """The path of another model with the same suffix."""
        return os.path.join(os.path.dirname(self.path), f"{model}{self.suffix}{end}")


@dataclass(frozen=True)
class LanguageModeling(Experiment):
    """A recipe."""

    name: str
    summary: str
    corpus: str
    # A function that checks the user's copy of the corpus and binarises it: ``prepare(shell, source, folder, small)``.
    # Its other files go to the folder, too.
    prepare: Callable[[Shell, str, str, bool], None]
    metric: str  # of the learning curves: bpb, loss or ppl
    prompt: str = "The"  # text that the step generate continues
    full: Scale | None = None
    small: Scale | None = None  # full and small: the papers' setting, and one for a CPU
    # Functions that draw figures of the results, ``draw(shell, out)``, after the step evaluate.
    figures: Sequence[Callable[[Shell, str], None]] = field(default_factory=tuple)
    # Functions that draw further figures, ``after(shell, out, runs)``, if the step train was asked for.
    after: Sequence[Callable[[Shell, str, list[ModelRun]], None]] = field(default_factory=tuple)
    extra = "fairseq-train"
    steps = ("prepare", "train", "finetune", "evaluate", "generate")
    on_all_machines = ("train", "finetune")

    def add_options(self, parser: RecipeParser) -> None:
        super().add_options(parser)
        parser.add_argument("--models", type=word_list, metavar='"NAME …"', help="models to train")
        text = "learning rate; fine-tuning has a tenth of it"
        parser.add_argument("--lr", type=learning_rate, metavar="LR", help=text)
        text = "streams in the evaluation; few of them leave more context to each token"
        parser.add_numbers(finetune_updates="of fine-tuning", valid_streams="streams in validation", test_streams=text)

    def describe(self, name: str, scale: Scale) -> Model:
        """The model of this name."""
        found = scale.named.get(name) or (scale.model(name) if scale.model else None)
        if found:
            return found
        if scale.architectures and name.startswith(ARCHITECTURES):
            return Model(name)
        known = ", ".join(dict.fromkeys([*scale.models, *scale.named]))
        others = " or another architecture" * scale.architectures
        raise UserError(f"--models {name}: unknown; choose from {known}{others}")

    def runs(self, call: Call) -> Iterator[ModelRun]:
        args, scale = call.args, call.setting
        if any(word == "--lr" or word.startswith("--lr=") for word in args.extra):
            raise UserError("--lr: give it before the --; fine-tuning then has a tenth of it")
        if args.layers and scale.shape is None:
            raise UserError("--layers: only with --small" if self.small else "--layers: this recipe has one depth")
        depths = args.layers or scale.layers or [None]
        for seed, layers, name in product(seeds_of(args), depths, args.models or scale.models):
            model = self.describe(name, scale)
            suffix = ("" if layers is None else f"-{layers}") + ("" if seed == 1 else f"-seed{seed}")
            shape = scale.shape(model.arch, layers) if scale.shape and layers is not None else {}
            training = training_of(model, scale, args)
            values = dict(model=name, layers=layers, seed=seed, lr=training.lr)
            options = {"arch": model.arch, **shape, **model.options}
            path = os.path.join(call.out, f"{name}{suffix}")
            yield ModelRun(path, values, options, args.extra, suffix, model, training)

    def begin(self, call: Call) -> None:
        call.prepare("dict.txt")
        processes = call.machines.processes
        for streams in (run.training.streams for run in call.runs):
            if streams % (processes * call.update_freq):
                raise UserError(
                    f"--update-freq {call.update_freq}: {streams} streams cannot be divided among "
                    f"{processes} processes x {call.update_freq}"
                )

    def waits(self, run: ModelRun) -> bool:
        return bool(run.described.init_from or run.described.finetune_from)

    def finish(self, call: Call) -> None:
        shell, out = call.shell, call.out
        draw_curves(shell, out, self.metric)
        if "evaluate" in call.steps:
            shell.do(results.collect_results, shell, out)
            if len({run.values["layers"] for run in call.runs}) > 1:
                result = "perplexity" if self.metric == "ppl" else "bits_per_token"
                results.draw_against("layers", f"test_{result}")(shell, out)
            for draw in self.figures:
                draw(shell, out)
            results.compare(shell, out)
        if "train" in call.steps:
            for draw in self.after:
                draw(shell, out, call.runs)

    def options(self, call: Call, run: ModelRun) -> dict[str, Any]:
        """The options that training and fine-tuning share."""
        training = run.training
        streams = training.streams // (call.machines.processes * call.update_freq)
        return {
            "task": "streaming_lm",
            "criterion": "lm_loss",
            **run.options,
            "tokens_per_sample": training.tokens_per_sample,
            "batch_size": streams,
            "update_freq": call.update_freq,
            "valid_streams": training.valid_streams,
            "optimizer": training.optimizer,
            **resolved(training.options, training.updates),
            "keep_interval_updates": 1,
        }

    def train(self, call: Call, shell: Shell, run: ModelRun) -> None:
        """Train a model, which may start from another one."""
        shell.comment(f"train {run.name}")
        training, options = run.training, self.options(call, run)
        origin, start = run.described.init_from, run.described.finetune_from
        if origin:
            options["init_from_transformer"] = best(run.beside(origin))
            shell.need(options["init_from_transformer"], f"train of the model {origin}")
        if start:
            options["finetune_from_model"] = best(run.beside(start, FINETUNED))
            shell.need(options["finetune_from_model"], f"finetune of the model {start}")
        options["lr"] = training.lr
        options.update(resolved({**training.warmup, **training.bptt_warmup}, training.updates))
        every, seed = training.validate_every, run.values["seed"]
        call.trainer.train(shell, run.path, call.data, options, updates=training.updates, every=every, seed=seed)

    def finetune(self, call: Call, shell: Shell, run: ModelRun) -> None:
        """Continue from the best checkpoint at a tenth of the learning rate. "The final performances are obtained by
        finetuning the models with a 10x smaller learning rate" (v3 §7.6)."""
        checkpoint, path, updates = best(run.path), run.finetuned, run.training.finetune_updates
        if not updates:
            return
        shell.need(checkpoint, "train")
        shell.comment(f"finetune {run.name}")
        # Any earlier fine-tuning may have started from another checkpoint.
        renewed = not shell.do(started_from, path, checkpoint, otherwise=False)
        if renewed and call.first:
            shell.do(start_over, path, checkpoint)
        start = "finetune_from_model"
        if run.training.optimizer == "clipped_adagrad":
            # Keep Adagrad's sums of squared gradients: without them its first steps would be as large as at the start
            # of training.
            done = shell.do(updates_of, checkpoint, otherwise=run.training.updates)
            shell.comment(f"(--max-update: {updates} more than the best checkpoint has, here {done})")
            start, updates = "continue_once", updates + done
        options = {**self.options(call, run), start: checkpoint, "lr": run.training.lr / 10}
        fixed = dict(every=run.training.validate_every, seed=run.values["seed"], renewed=renewed)
        call.trainer.train(shell, path, call.data, options, updates=updates, **fixed)

    def evaluate(self, call: Call, shell: Shell, run: ModelRun) -> None:
        """Evaluate the best checkpoints on the validation and test splits; the results go to RUN.json."""
        for path in (run.path, run.finetuned):
            checkpoint = best(path)
            if path == run.finetuned and not has_trained(shell, path):
                return
            shell.need(checkpoint, "train")
            for split, log in (("valid", f"{path}.valid.eval"), ("test", f"{path}.eval")):
                shell.comment(f"evaluate {os.path.basename(path)} on the {split} split")
                options = {
                    **dict(task="streaming_lm", **run.described.evaluation),
                    "gen_subset": split,
                    "valid_streams": run.training.test_streams,
                    "tokens_per_sample": run.training.tokens_per_sample,
                    "softmax_batch": 4096,
                    "path": checkpoint,
                }
                command = ["fairseq-eval-lm", call.data, "--user-dir", shell.user_dir, *words(options)]
                shell.run(*command, *call.machines.cpu, what="evaluation", log=log)
            identity = {"recipe": self.name, "small": call.small, **run.values}
            shell.do(write_results, shell, path, identity, run.training.test_streams, before(run, path))

    def generate(self, call: Call, shell: Shell, run: ModelRun) -> None:
        """Sample a continuation of the prompt from the fine-tuned model, or from the model itself."""
        checkpoint = best(run.finetuned if has_trained(shell, run.finetuned) else run.path)
        shell.need(checkpoint, "train")
        shell.comment(f"generate with {run.name}")
        sampling = dict(sampling=True, sampling_topk=10, beam=1, max_len_b=200, seed=run.values["seed"])
        command = ["fairseq-interactive", call.data, "--user-dir", shell.user_dir, "--task", "streaming_lm"]
        command += [*words(sampling), *call.machines.cpu, "--path", checkpoint]
        shell.run(*command, what="generation", log=f"{run.path}.sample", text=self.prompt)
        shell.do(self._say_sample, shell, run)

    def _say_sample(self, shell: Shell, run: ModelRun) -> None:
        lines = read(f"{run.path}.sample").splitlines()
        found = [line.split("\t")[2] for line in lines if line.startswith("D-0")]
        shell.say("\n".join([f"== {run.name} continues: {self.prompt}", *found]))


def best(run: str) -> str:
    """The best checkpoint of the run in this folder."""
    return os.path.join(run, "checkpoint_best.pt")


def has_trained(shell: Shell, run: str) -> bool:
    """Whether a run has a checkpoint; with ``--print``, whether its training was printed."""
    return shell.exists(best(run)) or shell.do(lambda: False, otherwise=shell.exists(f"{run}.log"))


def started_from(run: str, checkpoint: str) -> bool:
    """Whether the fine-tuning in RUN/ started from this checkpoint: RUN.from has its checksum."""
    return read(f"{run}.from").strip() == checksum(checkpoint)


def start_over(run: str, checkpoint: str) -> None:
    """Remove RUN/ and its files, and write down the checkpoint that it starts from."""
    for path in glob.glob(f"{glob.escape(run)}.*"):
        os.remove(path)
    shutil.rmtree(run, ignore_errors=True)
    Path(f"{run}.from").write_text(f"{checksum(checkpoint)}\n")


def training_of(model: Model, scale: Scale, args: argparse.Namespace) -> Training:
    """The setting of a model's training, with the values of the command line."""

    def changed(training: Training, *names: str, **given: Any) -> Training:
        given.update({name: getattr(args, name) for name in names})
        return replace(training, **{name: value for name, value in given.items() if value})

    training = scale.training_of(model.arch)
    post_norm = {"post_norm_lr": args.lr} if training.post_norm_lr else {}
    training = model.training(changed(training, "updates", "lr", "finetune_updates", **post_norm))
    return changed(training, "valid_streams", "test_streams")


def updates_of(checkpoint: str) -> int:
    """The number of updates of a checkpoint."""
    from fb_fairseq.commands.plot.files import load_checkpoint  # imports torch

    return load_checkpoint(checkpoint)["optimizer_history"][-1]["num_updates"]


def before(run: ModelRun, path: str) -> list[str]:
    """The runs that the one in ``path`` starts from, a model or its fine-tuning."""
    origin, start = run.described.init_from, run.described.finetune_from
    paths = [run.beside(origin)] if origin else []
    paths += [run.beside(start), run.beside(start, FINETUNED)] if start else []
    return [*paths, *([run.path] if path != run.path else [])]


def read_evaluation(path: str) -> tuple[float, int]:
    """Bits per token, and the number of tokens, in the output of fairseq-eval-lm."""
    bits, tokens = BITS.findall(read(path)), TOKENS.findall(read(path))
    if not bits or not tokens:
        raise UserError(f"{path}: has no result; run the same command again")
    return float(bits[-1]), int(tokens[-1].replace(",", ""))


def available_context(tokens: int, streams: int, span: int) -> float:
    """Mean share of the attention span, in %, that a token can look back on: each stream starts with an empty
    memory."""
    length = tokens // streams
    filling = min(length, span)
    return 100 * (filling * (filling - 1) / 2 + (length - filling) * span) / (length * span)


def write_results(
    shell: Shell, run: str, identity: Mapping[str, Any], streams: int, before: Sequence[str] = ()
) -> None:
    """Write RUN.json from RUN.valid.eval, RUN.eval, RUN.log, RUN.seconds and RUN.hardware, and say what is in it. The
    ``training_days`` include those of the runs that come before, from which this one starts; ``seconds`` are its
    own."""
    from fb_fairseq.commands.plot.files import load_checkpoint, model_options  # imports torch

    result: dict[str, Any] = {**identity, "finetuned": run.endswith(FINETUNED)}
    for name, path in (("dev", f"{run}.valid.eval"), ("test", f"{run}.eval")):
        bits, tokens = read_evaluation(path)
        result.update({f"{name}_bits_per_token": bits, f"{name}_perplexity": round(2**bits, 3)})
    span = model_options(load_checkpoint(best(run))).get("attention_span")
    if span:
        result["test_context"] = round(available_context(tokens, streams, span), 1)
    result.update(parameters=results.parameters_of(run), **results.training_cost(run))
    seconds = [results.training_cost(other).get("seconds") for other in [*before, run]]
    if None not in seconds:
        result["training_days"] = sum(seconds) / 86400
    results.write(run, result)
    context = f", with {result['test_context']} % of the attention span on average" if span else ""
    shell.say(
        f"== {os.path.basename(run)}: {result['dev_bits_per_token']} bits per token on the validation split, "
        f"{result['test_bits_per_token']} on the test split{context}; {result['parameters']:,} parameters, "
        f"{result.get('seconds')} s"
    )
