"""A trained Feedback Transformer in the form that ``fb-fairseq export`` writes."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor

from fb_fairseq.commands.export.models import write_folder
from fb_fairseq.errors import UserError, flag
from fb_fairseq.folders import check_own_folder
from fb_fairseq.papers.state_tracking.bodies import Tagger
from fb_fairseq.papers.state_tracking.options import Options
from fb_fairseq.papers.state_tracking.trainer import CHECKPOINT_FILE, RESULT_FILE, Trainer
from fb_fairseq.papers.toy_tasks.word_problem import group_named
from fb_fairseq.symbols import SPECIAL
from fb_fairseq.tensor_files import load_file, using
from fb_fairseq.trained_model import PREFIX, TrainedModel

NAME = "state-tracking-export"  # as the writer of files
NEVER = -1e4  # logit of special symbols, which are never labels
AGAIN = "run the same training again, until it ends"


def export(run: str, folder: str, overwrite: bool) -> list[str]:
    """Write a model. Inputs and labels have one dictionary, the group's elements; special symbols, such as the ``</s>``
    before a text, are read as the neutral one.

    Args:
        run: the folder of its training, on a word problem.
        folder: where to write it.
        overwrite: whether to replace one of an earlier call.

    Returns:
        The names of the files.
    """
    check_own_folder("--to", folder, NAME, overwrite)
    trainer, result = finished_run(run)
    options, stack = trainer.options, trainer.model.body.stack
    with reading_result(run):
        facts = {"updates": trainer.update, "notes": notes(options, result)}
    trained = TrainedModel(
        run,
        {"arch": "feedback_transformer_lm", **asdict(stack.options)},
        parameters_of(trainer.model),
        task={"labels": True, "separate_sequences": True},
        symbols=dict.fromkeys(("dict.input.txt", "dict.label.txt"), [*SPECIAL, *group_named(options.group).elements]),
        facts=facts,
    )
    return write_folder(NAME, folder, trained, overwrite=overwrite, dtype="bfloat16")


def finished_run(run: str) -> tuple[Trainer, dict[str, Any]]:
    """A run on a word problem that has come to its end: its trainer with the last checkpoint, and its result."""
    path = os.path.join(run, CHECKPOINT_FILE)
    with using(path):
        options = Options(**load_file(path)["options"])
    if (options.task, options.model) != ("word_problem", "feedback"):
        raise UserError(f"{run}: {options.task} with {options.model}; give a run of word_problem with feedback")
    trainer = Trainer(options, torch.device("cpu"))
    trainer.resume(path)
    result_path = os.path.join(run, RESULT_FILE)
    if not os.path.exists(result_path):
        raise UserError(f"{run}: has no {RESULT_FILE}; {AGAIN}")
    with reading_result(run), open(result_path, encoding="utf-8") as file:
        result = json.load(file)
        if result["updates"] != trainer.update:
            updates = f"{trainer.update:,}, {RESULT_FILE} of {result['updates']:,}"
            raise UserError(f"{run}: {CHECKPOINT_FILE} is of update {updates}; {AGAIN}")
        if "flawless" not in result:
            raise UserError(f"{run}: in its tests, mistakes were not counted; {AGAIN}")
    return trainer, result


@contextmanager
def reading_result(run: str) -> Iterator[None]:
    """Context of using a run's result, which may be damaged."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(f"{run}/{RESULT_FILE}: is damaged; {AGAIN}") from None


def parameters_of(tagger: Tagger) -> dict[str, Tensor]:
    """The parameters of a language model with one dictionary for inputs and labels."""
    words, output = tagger.embedding.weight, tagger.classifier
    neutral_ND = words[:1].expand(len(SPECIAL), -1)
    return {
        **{f"{PREFIX}{name}": value for name, value in tagger.body.stack.state_dict().items()},
        f"{PREFIX}embed_tokens.weight": torch.cat([neutral_ND, words]),
        f"{PREFIX}output_projection.weight": torch.cat([torch.zeros_like(neutral_ND), output.weight]),
        f"{PREFIX}output_projection.bias": torch.cat([output.bias.new_full((len(SPECIAL),), NEVER), output.bias]),
    }


def notes(options: Options, result: dict) -> list[tuple[str, str]]:
    """The lines of the model's card about its training and its tests."""
    values = ((each.name, getattr(options, each.name), each.default) for each in fields(options))
    words = [f"{flag(name)} {value}" for name, value, default in values if value != default]
    tested = f"{result['flawless']:.2%} without a mistake, {result['slips']:.1e} slips per step"
    written = "0 or 1" if options.group == "parity" else "the images of 1, 2, …"
    found = [
        ("task", f"the product so far of elements of {options.group}, each written as {written}"),
        ("command", f"`fb-fairseq state-tracking train --out DIR {' '.join(words)}`"),
        ("seed, hardware, time", f"{options.seed}; {result['hardware']}; {result['seconds']} s"),
        (f"test, {options.test_sequences:,} sequences of {len(result['sizes'])}", tested),
    ]
    return found + ([("ended", result["ended"])] if "ended" in result else [])
