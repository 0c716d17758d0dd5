"""Write a model as a folder for transformers: the model, its tokenizers, and its card."""

import json
import os
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from fb_fairseq.byte_codec import SYMBOLS
from fb_fairseq.errors import UserError
from fb_fairseq.facts import FACTS_ENTRY, WEIGHTS, known_facts
from fb_fairseq.folders import own_folder
from fb_fairseq.pretrained.folders import FURTHER_OPTIONS, TARGET_FOLDER, TASK_OPTIONS
from fb_fairseq.symbols import PAD, SPECIAL, never_drawn, padding_words, words_of
from fb_fairseq.tensor_files import using
from fb_fairseq.trained_model import TrainedModel

BEAMS, LONGEST = 5, 200  # fairseq-generate's --beam and --max-len-b


def write_folder(
    command: str,
    folder: str,
    trained: TrainedModel,
    *,
    codes: str | None = None,
    overwrite: bool = False,
    dtype: str | None = None,
) -> list[str]:
    """Write a model, with what is known of it in its card and in the header of its weights.

    Args:
        command: the one that writes it.
        folder: to write.
        trained: the model.
        codes: file of subword-nmt's codes, by which its words are split.
        overwrite: see ``fb_fairseq.folders.own_folder``.
        dtype: type of the floating-point numbers in the file of weights, as torch names it; None: that of the model,
            single precision.

    Returns:
        The names of its files.
    """
    from fb_fairseq.transformers.card import model_card
    from fb_fairseq.transformers.tokenizers import build_tokenizer

    dictionaries = dictionaries_by_folder(trained)
    old = os.path.join(folder, TARGET_FOLDER)
    if TARGET_FOLDER not in dictionaries and os.path.isdir(old):  # which would be read
        raise UserError(f"--to {old}: this model has no second tokenizer; remove it, or give another folder")
    with using(trained.path):
        model = transformers_model(trained)
    facts = facts_after_rounding(trained.facts, model, dtype)
    with own_folder("--to", folder, command, overwrite) as temporary:
        save_model(model, temporary, facts, dtype)
        for subfolder, symbols in dictionaries.items():
            tokenizer = build_tokenizer(
                symbols, codes, after_text=trained.translates, line_ends=not trained.task.get("omit_eos")
            )
            tokenizer.save_pretrained(os.path.join(temporary, subfolder))
        card = model_card(
            os.path.basename(os.path.abspath(folder)),
            model.config,
            parameters=sum(p.numel() for p in model.parameters()),
            reads=unit_of(dictionaries[""], codes),
            facts=facts,
            target_tokenizer=TARGET_FOLDER in dictionaries,
            labelled=" ".join(words_of(dictionaries[""])[:3]),  # an example for models of labels
        )
        with open(os.path.join(temporary, "README.md"), "w", encoding="utf-8") as file:
            file.write(card)
        return sorted(os.listdir(temporary))


def dictionaries_by_folder(trained: TrainedModel) -> dict[str, list[str]]:
    """The dictionaries that get a tokenizer, by its folder inside the model's: "" for that of the input."""
    source, *target = trained.symbols.values()
    if trained.translates and target != [source]:
        return {"": source, TARGET_FOLDER: target[0]}
    return {"": source}


def facts_after_rounding(facts: dict[str, Any], model, dtype: str | None) -> dict[str, Any]:
    """The facts of a model, with a note if its figures were measured with other numbers.

    Args:
        facts: see ``fb_fairseq.facts``.
        model: with the numbers that were measured.
        dtype: see ``write_folder``.
    """
    if dtype is None or all(p.equal(p.to(getattr(torch, dtype)).to(p.dtype)) for p in model.parameters()):
        return facts
    rounded = ("numbers", f"rounded to {dtype} after the figures above were measured")
    return {**facts, "notes": [*facts.get("notes", ()), rounded]}


def unit_of(symbols: list[str], codes: str | None) -> str:
    """The unit that a model reads: ``bytes``, ``words``, or, if there are codes of subword-nmt, ``subwords``."""
    if codes:
        return "subwords"
    return "bytes" if symbols[len(SPECIAL) :] == SYMBOLS else "words"


def transformers_model(trained: TrainedModel):
    """The model of transformers, in evaluation mode."""
    from fb_fairseq.transformers import (
        CONFIGS,
        FeedbackDecoderConfig,
        FeedbackDecoderForConditionalGeneration,
        FeedbackTransformerForTokenClassification,
    )
    from fb_fairseq.transformers.modeling import MODELS

    kinds = {**CONFIGS, FeedbackDecoderConfig.model_type: FeedbackDecoderConfig}
    config_class = kinds.get(trained.architecture)
    if config_class is None:
        raise trained.error(f"{trained.architecture} cannot be exported; give one of {', '.join(kinds)}")
    inputs, *_ = trained.symbols.values()  # a language model has one dictionary
    *_, outputs = trained.symbols.values()
    config = config_class(vocab_size=len(outputs), **config_values(trained, config_class))
    if trained.translates:
        model = FeedbackDecoderForConditionalGeneration(config)
        longest = min(LONGEST + 1, config.max_target_positions)  # with the </s> at the beginning
        model.generation_config.update(num_beams=BEAMS, early_stopping=True, min_new_tokens=1, max_length=longest)
        model.generation_config.update(suppress_tokens=[PAD, *padding_words(outputs)])
    elif config.labels:
        if inputs != outputs or config_class is not FeedbackTransformerForTokenClassification.config_class:
            raise trained.error(
                "predicts labels; of such models, feedback_transformer_lm with one dictionary is exported"
            )
        config.id2label = dict(enumerate(outputs))
        config.label2id = {symbol: index for index, symbol in enumerate(outputs)}
        model = FeedbackTransformerForTokenClassification(config)
    else:
        model = MODELS[config.model_type](config)
        model.generation_config.suppress_tokens = never_drawn(outputs)
    trained.fill(model)
    return model.eval()


def config_values(trained: TrainedModel, config_class: type) -> dict[str, Any]:
    """The arguments of a model's configuration. ``config_class``: a class of ``fb_fairseq.transformers``."""
    source, *_ = trained.symbols.values()
    known = {**trained.options, **trained.task, "source_vocab_size": len(source)}
    if trained.translates:
        known["activation_dropout"] = known.get("activation_dropout") or known.get("relu_dropout")
        if known.get("adaptive_softmax_cutoff"):
            known["share_decoder_input_output_embed"] = False  # fairseq ignores it then
    names = [*config_class.option_defaults()]
    names += [name for name in (*FURTHER_OPTIONS, *TASK_OPTIONS, "source_vocab_size") if hasattr(config_class, name)]
    return {name: known[name] for name in names if known.get(name) is not None}


def save_model(model, folder: str, facts: dict[str, Any], dtype: str | None = None) -> None:
    """Save configuration and weights, with their facts. The files get the permissions of any new file.

    Args:
        model: of transformers.
        folder: an existing folder.
        facts: see ``fb_fairseq.facts``.
        dtype: see ``write_folder``; when loaded, the numbers get the type that they have in ``model`` again.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.save_pretrained(folder)
    entries = {"format": "pt", FACTS_ENTRY: json.dumps(known_facts(facts))}
    path = os.path.join(folder, WEIGHTS)
    tensors = load_file(path)
    if dtype is not None:
        tensors |= {name: x.to(getattr(torch, dtype)) for name, x in tensors.items() if x.is_floating_point()}
    save_file(tensors, path, entries)
    readable = os.stat(os.path.join(folder, "config.json")).st_mode
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), readable)  # safetensors' are for their owner only
