"""Aligned labels: an input stream, and the label of each of its symbols.

The data are ``fairseq-preprocess``'s of two languages, ``input`` and ``label``: a line of inputs is a sequence, and its
line of labels has as many symbols. The label ``_`` counts for nothing.
"""

import os

import numpy as np
import torch
from fairseq.data import Dictionary

from fb_fairseq.errors import UserError
from fb_fairseq.streams.layout import Corpus

INPUT, LABEL = "input", "label"
IGNORED = "_"


def file_prefix(split: str, side: str) -> str:
    """Under which name ``fairseq-preprocess`` puts a split's inputs or labels."""
    return f"{split}.{INPUT}-{LABEL}.{side}"


def load_dictionary(folder: str, side: str) -> Dictionary:
    path = os.path.join(folder, f"dict.{side}.txt")
    if not os.path.isfile(path):
        raise UserError(
            f"{path}: no such file; --labels needs data that were prepared with fairseq-preprocess --source-lang {INPUT} "
            f"--target-lang {LABEL}"
        )
    return Dictionary.load(path)


class LabelledCorpus:
    """A split's inputs and labels, end to end. Before each sequence the models read ``</s>``; streams begin with one.

    Raises:
        UserError: a sequence has more or fewer labels than inputs.
    """

    def __init__(self, path: str, inputs: Corpus, labels: Corpus, dictionary: Dictionary):
        self.path, self.inputs, self.labels = path, inputs, labels
        self.pad, self.unknown = dictionary.pad(), dictionary.unk()
        self.ignored = torch.tensor([dictionary.eos(), dictionary.index(IGNORED)])
        if IGNORED not in dictionary:
            self.ignored = self.ignored[:1]
        sizes, others = (np.asarray(corpus.dataset.sizes) for corpus in (inputs, labels))
        if len(sizes) != len(others):
            raise UserError(
                f"{path}: {len(sizes)} lines of inputs, but {len(others)} of labels; each line needs its labels"
            )
        for line in np.flatnonzero(sizes != others)[:1]:
            raise UserError(
                f"{path}: line {line + 1} has {sizes[line] - 1} inputs, but {others[line] - 1} labels; give each symbol a "
                f"label ({IGNORED} where none is wanted)"
            )

    @property
    def ends(self):
        return self.inputs.ends

    @property
    def dataset(self):
        return self.inputs.dataset

    def __len__(self) -> int:
        return len(self.inputs)

    def block(self, first: int, last: int):
        """The inputs before the positions first + 1 … last, and their labels: padding where they count for nothing.

        A sequence's own ``</s>`` comes after it, so all is read one position later.

        Raises:
            UserError: a label is not in the dictionary.
        """
        labels = self.labels[first - 1 : last - 1]
        if (labels == self.unknown).any():
            raise UserError(
                f"{self.path}: a label is not in dict.{LABEL}.txt; prepare it with the training labels' dictionary"
            )
        return self.inputs[first - 1 : last - 1], labels.masked_fill(torch.isin(labels, self.ignored), self.pad)

    def fingerprint(self) -> int:
        return self.inputs.fingerprint() ^ self.labels.fingerprint()
