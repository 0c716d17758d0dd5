"""Labelled sequences: what is read, what counts, where streams begin; refused data."""

from argparse import Namespace

import pytest
import torch
from fairseq.data import Dictionary

from fb_fairseq.errors import UserError
from fb_fairseq.streams.fairseq.corpus import Corpus
from fb_fairseq.streams.fairseq.dataset import StreamDataset
from fb_fairseq.streams.fairseq.labels import LabelledCorpus
from fb_fairseq.streams.layout import BlockLengths, StreamLayout
from fb_fairseq.tasks.streaming_lm import StreamingLMTask
from tests.streams.fairseq.indexed import EOS, PAD, Items, write


def dictionary(*symbols):
    """fairseq's dictionary of these symbols."""
    made = Dictionary()
    for symbol in symbols:
        made.add_symbol(symbol)
    return made


LABELS = dictionary("_", "a", "b")  # 4, 5, 6


def corpus(inputs, labels, labels_dictionary=LABELS):
    """Lines of inputs with their labels, each followed by </s>."""
    sides = [Corpus(Items(torch.tensor([*line, EOS]) for line in lines), EOS) for lines in (inputs, labels)]
    return LabelledCorpus("data/train", *sides, labels_dictionary)


INPUTS, THEIRS = [[10, 11, 12], [20], [30, 31], [40, 41]], [[5, 4, 6], [6], [4, 4], [5, 5]]


def test_inputs_and_their_labels():
    """Each sequence after </s>; nothing counts there, nor at _."""
    inputs, labels = corpus(INPUTS, THEIRS).block(0, 12)
    assert inputs.tolist() == [EOS, 10, 11, 12, EOS, 20, EOS, 30, 31, EOS, 40, 41]
    assert labels.tolist() == [PAD, 5, PAD, 6, PAD, 6, PAD, PAD, PAD, PAD, 5, 5]


@pytest.mark.parametrize("streams,groups", [(1, 1), (2, 1), (2, 2), (4, 2)])
@pytest.mark.parametrize("block", [1, 3, 100])
def test_streams_of_whole_sequences(streams, groups, block):
    """Each begins with a sequence; each label comes once."""
    data = corpus(INPUTS, THEIRS)
    layout = StreamLayout(len(data), streams, groups, BlockLengths(block), ends=data.ends)
    dataset = StreamDataset("train", data, PAD).arrange(layout, "--batch-size")
    read, wanted = {}, {}
    counted = 0
    for index in range(len(dataset)):
        batch = dataset[index]
        assert batch["ntokens"] == int(batch["target"].ne(PAD).sum())
        counted += batch["ntokens"]
        for stream, row, target, length in zip(
            batch["id"].tolist(), batch["net_input"]["src_tokens"], batch["target"], batch["net_input"]["src_lengths"]
        ):
            read.setdefault(stream, []).extend(row[:length].tolist())
            wanted.setdefault(stream, []).extend(target[:length].tolist())
    assert counted == 5
    assert all(stream[0] == EOS for stream in read.values())
    for served, side in zip((read, wanted), data.block(0, 12)):
        assert sum((served[stream] for stream in sorted(served)), []) == side.tolist()


def test_refused():
    with pytest.raises(UserError, match="4 lines of inputs, but 3 of labels"):
        corpus(INPUTS, THEIRS[:3])
    with pytest.raises(UserError, match="data/train: inputs in line 2: 1, labels: 2; give each"):
        corpus(INPUTS, [THEIRS[0], [5, 5], *THEIRS[2:]])
    with pytest.raises(UserError, match="a label is not in dict.label.txt"):
        corpus(INPUTS, [[5, LABELS.unk(), 5], *THEIRS[1:]]).block(0, 4)


def test_labels_without_a_blank():
    """Where every symbol has a label, _ need not be in the dictionary."""
    known = dictionary("a", "b")
    assert corpus([[9, 9]], [[4, 5]], known).block(0, 3)[1].tolist() == [PAD, 4, 5]


def test_fingerprint_of_a_copy_task():
    """Where labels are the inputs, other sequences are told apart."""
    assert corpus(INPUTS, INPUTS).fingerprint() != corpus(INPUTS[::-1], INPUTS[::-1]).fingerprint()


def test_several_splits(tmp_path):
    """``train1`` goes on where ``train`` ends, if splits are combined."""
    for number, lines in (("", INPUTS), ("1", THEIRS)):
        for side in ("input", "label"):
            write(f"{tmp_path}/train{number}.input-label.{side}", [[*line, EOS] for line in lines])
    own = Namespace(labels=True, data=str(tmp_path), sample_break_mode="none", save_stream_memory="none")
    own.dataset_impl, own.train_subset, own.omit_eos = None, "train", False
    task = StreamingLMTask(own, LABELS, LABELS)
    task.load_dataset("train", combine=True)
    found, wanted = task.dataset("train").corpus, corpus(INPUTS + THEIRS, INPUTS + THEIRS)
    assert found.ends.tolist() == wanted.ends.tolist()
    assert all(side.equal(other) for side, other in zip(found.block(0, 24), wanted.block(0, 24)))
