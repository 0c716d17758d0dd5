"""Facts of how a model was made, for its card. They travel with its parameters, and end where others take their place:
they are in the header of ``model.safetensors``, which another program that writes the file leaves out, or an entry of a
checkpoint. A fact that is not known is left out.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from safetensors import SafetensorError, safe_open

from fb_fairseq.files import WRITER
from fb_fairseq.tensor_files import model_options

FACTS = "facts"  # an entry of a checkpoint that a command has written
FACTS_ENTRY = "fb_fairseq_facts"  # in the header of .safetensors
WEIGHTS = "model.safetensors"
TEXTS = ("data", "license", "language")  # options of ``export``
# The facts that a training's measures are, by its --best-checkpoint-metric: the loss in bits per token, the same per
# byte, and BLEU.
MEASURES = {"loss": "valid_bits", "nll_loss": "valid_bits", "bpb": "valid_bpb", "bleu": "valid_bleu"}
# Names and types. Further lines of the card are in ``notes``, pairs of texts.
TYPES = {**dict.fromkeys(TEXTS, str), "updates": int, **dict.fromkeys(MEASURES.values(), float)}
LIMITS = {int: 10**15, float: 1000}


def known_facts(found: Any) -> dict[str, Any]:
    """The facts among other entries, as far as they are of the right kind: they may come from anywhere."""
    known: dict[str, Any] = {}
    if not isinstance(found, Mapping):
        return known
    for name, kind in TYPES.items():
        value = found.get(name)
        if type(value) is kind and (kind is str or 0 <= value < LIMITS[kind]):
            known[name] = value
    if isinstance(found.get("notes"), list):
        pairs = [tuple(note) for note in found["notes"] if isinstance(note, (list, tuple))]
        notes = [pair for pair in pairs if list(map(type, pair)) == [str, str]]
        if notes:
            known["notes"] = notes
    return known


def facts_in(folder: str) -> dict[str, Any]:
    """The facts of the weights in a folder; empty if their file has none."""
    try:
        with safe_open(os.path.join(folder, WEIGHTS), "pt") as file:
            return known_facts(json.loads(file.metadata()[FACTS_ENTRY]))
    except (FileNotFoundError, SafetensorError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def facts_of_checkpoint(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a checkpoint's parameters. In one that a command has written, they are those that the command gives:
    what fairseq reads there as updates and validation loss is filled in.
    """
    if WRITER in checkpoint:
        return known_facts(checkpoint.get(FACTS))
    history = checkpoint.get("optimizer_history") or [{}]
    facts = {"updates": history[-1].get("num_updates")}
    metric = model_options(checkpoint, "checkpoint").get("best_checkpoint_metric", "loss")
    smoothed = model_options(checkpoint, "criterion").get("label_smoothing")
    of_sentences = model_options(checkpoint, "optimization").get("sentence_avg")  # (lm_loss refuses the option)
    if metric == "loss" and (smoothed or of_sentences):
        metric = None
    name = MEASURES.get(metric)
    value = (checkpoint.get("extra_state") or {}).get("val_loss")
    if name and value is not None:
        facts[name] = float(value)
    return known_facts(facts)


def facts_of_average(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of the average of models: the updates of the last one, and the texts that are the same for all;
    figures are left out.

    ``parts``: the facts of each model.
    """
    first, *others = parts
    same = {name: first.get(name) for name in TEXTS if all(part.get(name) == first.get(name) for part in others)}
    return known_facts({**same, "updates": parts[-1].get("updates")})
