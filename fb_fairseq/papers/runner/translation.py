"""Recipes that train translation and summarization models: a vanilla Transformer, and feedback decoders. The steps are
prepare, train, average, tune (length penalty and lengths, on the validation set), generate and score (both on the test
set)."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.files import atomic_write
from fb_fairseq.papers.runner import results
from fb_fairseq.papers.runner.options import RecipeParser, name_among, names_among, seeds_of
from fb_fairseq.papers.runner.settings import Options, resolved, words
from fb_fairseq.papers.runner.shell import Shell, read
from fb_fairseq.papers.runner.sweep import Call, Experiment, Run
from fb_fairseq.papers.runner.training import draw_curves

MODELS = ("transformer", "feedback", "initialised")
LOSS = dict(criterion="label_smoothed_cross_entropy", label_smoothing=0.1)
ADAM = dict(optimizer="adam", adam_betas="(0.9, 0.98)")
VALIDATION = re.compile(r"\| valid \| (\{.*\})$", re.MULTILINE)
SPEED = re.compile(r"Translated [\d,]+ sentences .* \([\d.]+ sentences/s, ([\d.]+) tokens/s\)")


@dataclass(frozen=True)
class Scale:
    """A translation experiment at one size."""

    source: str  # of the values: paper, section and table
    transformer: str  # the architecture of the vanilla model
    feedback: str  # that of the feedback decoder
    updates: int
    max_tokens: int  # in an update, over all processes
    validate_every: int  # updates between validations, and between checkpoints
    layers: Sequence[int]  # the default of ``--layers``, numbers of decoder layers
    training: Options
    decoding: Options  # of generation
    sizes: Options = field(default_factory=dict)  # of the models
    average: int = 1  # number of last checkpoints to average; 1: the best one is taken
    lenpens: Sequence[float] = (1.0,)  # length penalties to try
    lengths: Sequence[Options] = ({},)  # options of generation, of the lengths of outputs, to try after that
    # Of the model ``feedback``, "per-layer" or "shared". ``initialised`` has per-layer ones by default: each has
    # a counterpart in the vanilla model.
    projections: str = "per-layer"
    # Further models: feedback decoders with these other options, of which ``decoder_layers`` is one.
    variants: Mapping[str, Options] = field(default_factory=dict)


@dataclass(frozen=True)
class Translation(Experiment):
    """A recipe."""

    name: str
    summary: str
    corpus: str
    pair: Sequence[str]  # source and target language
    # A function that checks the user's copy of the corpus and binarises it: ``prepare(shell, source, folder, small)``.
    prepare: Callable[[Shell, str, str, bool], None]
    metric: Sequence[str]  # that of tuning: a name of ``score --metrics``, and its key in the JSON
    full: Scale
    small: Scale  # full and small: the papers' setting, and one for a CPU
    language: str = ""  # of the outputs, for the scores; empty: the target language
    task: Options = field(default_factory=dict)  # further options of the task
    extra = "fairseq-train"
    steps = ("prepare", "train", "average", "tune", "generate", "score")

    def add_options(self, parser: RecipeParser) -> None:
        super().add_options(parser)
        models = (*MODELS, *self.full.variants)
        parser.add_argument("--models", type=names_among(models), default=list(MODELS), metavar=f'"{" ".join(models)}"')
        parser.add_argument("--projections", type=name_among(("per-layer", "shared")), metavar="per-layer|shared")

    def runs(self, call: Call) -> Iterator[Run]:
        args, scale, variants = call.args, call.setting, self.full.variants
        layers = args.layers or scale.layers
        if not args.layers and all(model in variants for model in args.models):
            layers = list(dict.fromkeys(variants[model]["decoder_layers"] for model in args.models))
        for seed, depth, model in product(seeds_of(args), layers, args.models):
            wanted = variants[model]["decoder_layers"] if model in variants else depth
            if depth != wanted:
                raise UserError(f"--layers {depth}: {model} has {wanted} decoder layers; give --layers {wanted}")
            suffix = f"-{depth}" + ("" if seed == 1 else f"-seed{seed}")
            default = {"transformer": None, "initialised": "per-layer"}.get(model, scale.projections)
            projections = (args.projections or default) if default else None
            values = dict(model=model, layers=depth, seed=seed, projections=projections)
            options = {
                **scale.sizes,
                "decoder_layers": depth,
                "arch": scale.transformer if model == "transformer" else scale.feedback,
                "memory_projections": projections,
                **variants.get(model, {}),
            }
            yield Run(os.path.join(call.out, f"{model}{suffix}"), values, options, args.extra, suffix)

    def task_options(self) -> Options:
        """The options of fairseq's task."""
        return {"task": "translation", "source_lang": self.pair[0], "target_lang": self.pair[1], **self.task}

    def begin(self, call: Call) -> None:
        call.prepare(f"dict.{self.pair[1]}.txt")

    def waits(self, run: Run) -> bool:
        return run.values["model"] == "initialised"

    def finish(self, call: Call) -> None:
        shell, out = call.shell, call.out
        draw_curves(shell, out, "nll_loss")
        if "score" in call.steps:
            shell.do(results.collect_results, shell, out)
            if len({run.values["layers"] for run in call.runs}) > 1:
                results.draw_against("layers", self.metric[1], "dev_nll", "decoded_tokens_per_second")(shell, out)
            results.compare(shell, out)

    def train(self, call: Call, shell: Shell, run: Run) -> None:
        """Train a model."""
        shell.comment(f"train {run.name}")
        start, scale, updates = {}, call.setting, call.args.updates or call.setting.updates
        if self.waits(run):
            vanilla = os.path.join(call.out, f"transformer{run.suffix}", "checkpoint_best.pt")
            shell.need(vanilla, "train of the model transformer")
            start = dict(init_from_transformer=vanilla)
        options = {
            **self.task_options(),
            **run.options,
            **start,
            **resolved(scale.training, updates),
            **LOSS,
            **ADAM,
            "max_tokens": scale.max_tokens // call.machines.processes // call.update_freq,
            "update_freq": call.update_freq,
            "keep_interval_updates": scale.average,
            "num_workers": 0,
        }
        every, seed = scale.validate_every, run.values["seed"]
        call.trainer.train(shell, run.path, call.data, options, updates=updates, every=every, seed=seed)

    def average(self, call: Call, shell: Shell, run: Run) -> None:
        """Write the average of the last checkpoints, or a copy of the best one, to RUN.pt."""
        path, target, number = run.path, f"{run.path}.pt", call.setting.average
        best = os.path.join(path, "checkpoint_best.pt")
        shell.need(best, "train")
        if shell.do(newer, target, f"{path}.done"):
            return
        shell.comment(f"average checkpoints of {run.name}")
        if number > 1:
            options = dict(inputs=path, num_update_checkpoints=number, output=target)
            shell.run("python", "-m", "fb_fairseq", "average-checkpoints", *words(options))
        else:
            shell.show("cp", best, target)
            shell.do(copy, best, target)

    def translate(self, call: Call, shell: Shell, run: Run, subset: str, lengths: Options) -> None:
        """Translate a subset with the model to RUN.SUBSET."""
        checkpoint, target = f"{run.path}.pt", f"{run.path}.{subset}"
        shell.need(checkpoint, "average")
        options = {
            **self.task_options(),
            "gen_subset": subset,
            "path": checkpoint,
            "remove_bpe": True,
            "max_tokens": 4000,
            "num_workers": 0,
            "cpu": bool(call.machines.cpu),
            **call.setting.decoding,
            **lengths,
        }
        command = ["fairseq-generate", call.data, "--user-dir", shell.user_dir, *words(options)]
        shell.run(*command, what="generation", log=f"{target}.err", write=target)

    def score_command(self, generated: str, *more: str) -> list[str]:
        """The command that scores the output of fairseq-generate."""
        language = self.language or self.pair[1]
        return ["python", "-m", "fb_fairseq", "score", "--gen", generated, "--language", language, *more]

    def tune(self, call: Call, shell: Shell, run: Run) -> None:
        """Find the length penalty with the best metric on the validation set, and then the best lengths. Writes the
        options of generation to RUN.tuned, one word per line, and the metric's value to RUN.dev."""
        shell.need(f"{run.path}.pt", "average")
        if shell.do(newer, f"{run.path}.tuned", f"{run.path}.pt"):
            return
        metric, key = self.metric
        first, *others = call.setting.lengths
        chosen, best = {"lenpen": 1.0, **first}, -1.0

        def attempt(tried: Options) -> None:
            nonlocal chosen, best
            options = " ".join(words(tried))
            shell.comment(f"tune {run.name}: {options}")
            self.translate(call, shell, run, "valid", tried)
            text = shell.output(*self.score_command(f"{run.path}.valid", "--metrics", metric), what="scoring")
            value = shell.do(lambda: json.loads(text)[key], otherwise=best)
            shell.say(f"== {run.name}: {key} {value} on the validation set with {options}")
            if value > best:
                chosen, best = tried, value

        for lenpen in call.setting.lenpens:
            attempt({"lenpen": lenpen, **first})
        for lengths in others:
            attempt({"lenpen": chosen["lenpen"], **lengths})
        shell.do(Path(f"{run.path}.dev").write_text, f"{best}\n")
        shell.do(Path(f"{run.path}.tuned").write_text, "\n".join([*words(chosen), ""]))

    def generate(self, call: Call, shell: Shell, run: Run) -> None:
        """Translate the test set with the tuned options to RUN.test."""
        checkpoint, target, tuned = (f"{run.path}{end}" for end in (".pt", ".test", ".tuned"))
        shell.need(checkpoint, "average")
        lenpens = call.setting.lenpens
        default = {"lenpen": lenpens[0] if len(lenpens) == 1 else 1.0, **call.setting.lengths[0]}
        shell.comment(f"generate with {run.name} (length options: the best ones of tune)")
        if not shell.do(lambda: newer(target, checkpoint) and not newer(tuned, target)):
            self.translate(call, shell, run, "test", shell.do(read_tuned, tuned, otherwise={}) or default)

    def score(self, call: Call, shell: Shell, run: Run) -> None:
        """Write the scores on the test set to RUN.json."""
        shell.need(f"{run.path}.test", "generate")
        shell.comment(f"score {run.name}")
        raw = os.path.join(call.data, f"test.raw.{self.pair[1]}")
        reference = ["--raw-ref", raw] if shell.exists(raw) else []
        scores = shell.output(*self.score_command(f"{run.path}.test", *reference), what="scoring")
        identity = {"recipe": self.name, "small": call.small}
        identity.update({name: value for name, value in run.values.items() if value})
        shell.do(write_results, shell, run.path, identity, scores)


def copy(source: str, target: str) -> None:
    """Copy a file, which appears only when it is complete."""
    with atomic_write(target) as temporary:
        shutil.copyfile(source, temporary)


def newer(path: str, other: str) -> bool:
    """Whether a file exists and is newer than another one, which may not exist."""
    if not os.path.exists(path):
        return False
    return not os.path.exists(other) or os.path.getmtime(path) > os.path.getmtime(other)


def read_tuned(path: str) -> dict[str, str]:
    """The options in RUN.tuned; empty if there is no such file."""
    lines = read(path).split()
    return {name[2:].replace("-", "_"): value for name, value in zip(lines[::2], lines[1::2])}


def best_nll(log: str) -> float:
    """The validation nll, in bits per token, where the loss, which may be smoothed, is lowest (the best checkpoint)."""
    best = min(map(json.loads, VALIDATION.findall(log)), key=lambda measured: float(measured["valid_loss"]))
    return float(best.get("valid_nll_loss", best["valid_loss"]))  # criterion cross_entropy logs only one of them


def write_results(shell: Shell, run: str, identity: Mapping[str, Any], scores: str) -> None:
    """Write RUN.json, and say what is in it."""
    result: dict[str, Any] = {**identity, **json.loads(scores), "parameters": results.parameters_of(run)}
    result["dev_nll"] = best_nll(read(f"{run}.log"))
    tuned = read_tuned(f"{run}.tuned")
    result.update({name: float(tuned[name]) for name in ("lenpen", "max_len_b", "min_len") if name in tuned})
    if os.path.exists(f"{run}.dev"):
        result["dev_score"] = float(read(f"{run}.dev"))
    result.update(results.training_cost(run))
    speeds = SPEED.findall(read(f"{run}.test.err") + read(f"{run}.test"))
    result["decoded_tokens_per_second"] = float(speeds[-1]) if speeds else None
    results.write(run, result)
    shell.say(f"== {os.path.basename(run)}: {json.dumps(result)}")
