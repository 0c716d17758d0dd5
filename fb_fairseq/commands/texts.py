"""The texts that language models are run on: binarised data, files, and prompts.

fairseq is imported only to read its files, so that exported models do without it.
"""

import os
from typing import TYPE_CHECKING

from fb_fairseq.errors import UserError
from fb_fairseq.files import open_text
from fb_fairseq.symbols import EOS

if TYPE_CHECKING:
    from fb_fairseq.pretrained.model import LanguageModel
    from fb_fairseq.streams.fairseq.corpus import Corpus
    from fb_fairseq.streams.fairseq.labels import LabelledCorpus


def load_data(model: "LanguageModel", data: str, split: str) -> "Corpus | LabelledCorpus":
    """The corpus of a split; a ``LabelledCorpus`` for a model of labels.

    Args:
        model: the one that reads it.
        data: the folder of binarised data, whose dictionaries must be the model's.
        split: its name, ``valid`` or the like.
    """
    from fb_fairseq import patches  # noqa: F401  before fairseq is used

    # isort: split
    from fairseq.data import Dictionary

    from fb_fairseq.streams.fairseq.corpus import load_corpus
    from fb_fairseq.streams.fairseq.labels import load_labelled

    found = []
    for name, symbols in model.dictionaries.items():
        path = os.path.join(data, name)
        if not os.path.isfile(path):
            raise UserError(f"{path}: no such file; give data binarised with the dictionary of {model.source}")
        found.append(Dictionary.load(path))
        if found[-1].symbols != symbols:
            raise UserError(
                f"{model.source}: was trained with another dictionary than {path}; binarise data with its own"
            )
    path = os.path.join(data, split)
    if model.labels:
        return load_labelled(path, *found, impl=None, combine=False)
    return load_corpus(path, *found, omit_eos=not model.line_ends)


def load_inputs(model: "LanguageModel", data: str | None, split: str) -> "Corpus":
    """The ``Corpus`` of the inputs of a split, as one text. Refused for models that read each sequence by itself.

    Args:
        model: the one that reads it.
        data: see ``load_data``; None: not given, which is refused.
        split: see there.
    """
    if data is None:
        raise UserError(f"{model.source}: give the folder of the binarised text to read with --data")
    if model.separate_sequences:
        raise UserError(f"{model.source}: reads each sequence with an empty memory; give one with --prompt or --text")
    corpus = load_data(model, data, split)
    return corpus.inputs if model.labels else corpus


def text_of(model: "LanguageModel", prompt: str | None, file: str | None) -> list[int]:
    """The tokens that a model reads of a text, ``</s>`` first.

    Args:
        model: the one that reads it.
        prompt: the text of ``--prompt``, whose words must be known; None: that of a file.
        file: the name in ``--text``; unknown words become ``<unk>``.
    """
    vocabulary = model.vocabulary
    if prompt is not None:
        tokens = vocabulary.encode_prompt(prompt)
    elif file is not None:
        with open(file, "rb") if vocabulary.of_bytes else open_text(file) as opened:
            tokens = vocabulary.encode(opened.read())
    else:
        raise UserError(f"{model.source}: give a short text with --prompt, or a file with --text")
    if not tokens:
        raise UserError(f"{file or '--prompt'}: is empty; give at least one token")
    return [EOS, *tokens]
