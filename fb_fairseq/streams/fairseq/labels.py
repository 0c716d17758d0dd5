"""Labelled sequences: a stream of input symbols, and a label for each of them.

The data are prepared with ``fairseq-preprocess`` as two languages, ``input`` and ``label``. One line of inputs is a
sequence; the same line of labels has as many symbols. The label ``_`` is ignored.
"""

import os

import numpy as np
import torch
from fairseq.data import ConcatDataset, Dictionary

from fb_fairseq.errors import UserError
from fb_fairseq.streams.fairseq.corpus import Corpus, load_indexed_dataset

INPUT, LABEL = "input", "label"
PAIR = f"{INPUT}-{LABEL}"  # in the names of fairseq-preprocess's files: <split>.input-label.input, …
IGNORED = "_"


def load_dictionary(folder: str, side: str) -> Dictionary:
    """Load the dictionary of inputs or labels."""
    path = os.path.join(folder, f"dict.{side}.txt")
    if not os.path.isfile(path):
        raise UserError(
            f"{path}: no such file; --labels needs data of fairseq-preprocess --source-lang {INPUT} --target-lang "
            f"{LABEL}"
        )
    return Dictionary.load(path)


class LabelledCorpus:
    """The concatenated inputs of a split, and their labels.

    Models read ``</s>`` before each sequence, so a block may span several sequences, and a stream begins with ``</s>``.

    Args:
        path: names the split in error messages.
        inputs, labels: of the split; each sequence ends with ``</s>``.
        dictionary: the dictionary of labels.
    """

    def __init__(self, path: str, inputs: Corpus, labels: Corpus, dictionary: Dictionary):
        self.path, self.inputs, self.labels = path, inputs, labels
        self.pad = dictionary.pad()
        self.unknown = dictionary.unk()
        ignored = [dictionary.eos()]
        if IGNORED in dictionary:
            ignored.append(dictionary.index(IGNORED))
        self.ignored = torch.tensor(ignored)
        check_lines(path, inputs.dataset, labels.dataset)

    @property
    def ends(self) -> np.ndarray:
        """The ends of the sequences (exclusive), as in ``Corpus``."""
        return self.inputs.ends

    def __len__(self) -> int:
        return len(self.inputs)

    def block(self, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The inputs and targets of the positions ``first`` to ``last - 1``; ignored labels become padding.

        In the corpus ``</s>`` ends a sequence, but models read it before the sequence. So everything moves one position
        to the right: position p holds token p - 1 and its own label.
        """
        labels = self.labels[first - 1 : last - 1]
        if (labels == self.unknown).any():
            raise UserError(
                f"{self.path}: a label is not in dict.{LABEL}.txt; prepare the split with the dictionary of the "
                "training labels (fairseq-preprocess --tgtdict)"
            )
        return self.inputs[first - 1 : last - 1], labels.masked_fill(torch.isin(labels, self.ignored), self.pad)

    def fingerprint(self) -> int:
        """A checksum of inputs and labels, one beside the other; see ``Corpus.fingerprint``."""
        return self.inputs.fingerprint() << 32 | self.labels.fingerprint()


def load_labelled(
    path: str, inputs: Dictionary, labels: Dictionary, *, impl: str | None, combine: bool
) -> LabelledCorpus:
    """Load the inputs and labels of a split.

    Args:
        path: the folder and the name of the split.
        inputs, labels: the dictionaries.
        impl: see ``load_indexed_dataset``.
        combine: also append the splits ``<path>1``, ``<path>2``, …, as ``load_indexed_dataset`` does.
    """
    splits = [path]
    while combine and os.path.isfile(f"{path}{len(splits)}.{PAIR}.{INPUT}.idx"):
        splits.append(f"{path}{len(splits)}")
    parts: dict[str, list] = {INPUT: [], LABEL: []}
    for split in splits:
        own = {
            side: load_indexed_dataset(f"{split}.{PAIR}.{side}", dictionary, impl)
            for side, dictionary in ((INPUT, inputs), (LABEL, labels))
        }
        check_lines(split, own[INPUT], own[LABEL])  # here, to name this split and its line
        for side, dataset in own.items():
            parts[side].append(dataset)
    whole_inputs = Corpus(ConcatDataset(parts[INPUT]), inputs.eos())
    whole_labels = Corpus(ConcatDataset(parts[LABEL]), labels.eos())
    return LabelledCorpus(path, whole_inputs, whole_labels, labels)


def check_lines(path: str, inputs, labels) -> None:
    """Check that each line of inputs has as many labels.

    Args:
        path: of the split.
        inputs, labels: fairseq's datasets.
    """
    input_sizes, label_sizes = (np.asarray(dataset.sizes) for dataset in (inputs, labels))
    if len(input_sizes) != len(label_sizes):
        raise UserError(
            f"{path}: {len(input_sizes)} lines of inputs, but {len(label_sizes)} of labels; each line of inputs needs "
            "a line of labels"
        )
    unlike = np.flatnonzero(input_sizes != label_sizes)
    if len(unlike):
        line = unlike[0]
        raise UserError(
            f"{path}: inputs in line {line + 1}: {input_sizes[line] - 1}, labels: {label_sizes[line] - 1}; give each "
            f"symbol a label ({IGNORED} if it has none)"
        )
