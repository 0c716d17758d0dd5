"""The concatenated tokens of a split, the formats they are read from, and documents in several pieces."""

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

from fb_fairseq.byte_codec import ITEM_TOKENS
from fb_fairseq.commands.preprocess_bytes import binarise, byte_dictionary
from fb_fairseq.errors import UserError
from fb_fairseq.streams.fairseq.corpus import Corpus, Documents, check_ends, load_corpus, load_indexed_dataset
from tests.streams.fairseq.indexed import EOS, Items, corpus, write

LINES = Items(torch.tensor(line) for line in ([5, 6, EOS], [EOS], [EOS], [7, EOS], [8, 9, 10, EOS], [EOS]))
EMPTY = corpus([3, 0, 4, 0]).dataset


@pytest.mark.parametrize("lines,omit_eos", [(LINES, False), (LINES, True), (EMPTY, False)])
def test_every_slice(lines, omit_eos):
    """Of one sequence after </s>."""
    text = Corpus(lines, EOS, omit_eos)
    tokens = torch.cat(list(lines)).tolist()
    if omit_eos:
        tokens = [token for token in tokens if token != EOS]
    assert len(text) == len(tokens)
    for start in range(-1, len(tokens)):
        for stop in range(start + 1, len(tokens) + 1):
            assert text[start:stop].tolist() == ([EOS] + tokens)[start + 1 : stop + 1], (start, stop)


def test_an_empty_corpus():
    assert len(Corpus(Items([]), EOS)) == 0


def test_lines_must_end():
    check_ends("data", LINES, EOS)
    with pytest.raises(UserError, match="data: its lines do not end in </s>; leave out --omit-eos"):
        check_ends("data", Items([torch.tensor([5, EOS]), torch.tensor([5, 6])]), EOS)
    with pytest.raises(UserError, match="data: has no tokens but </s>"):
        check_ends("data", Items([torch.tensor([EOS])]), EOS)


@pytest.mark.parametrize("tokens,expected", [(5, 491344127), (500, 902216847)])
def test_fingerprints_stay(tokens, expected):
    """Runs of earlier versions go on."""
    assert corpus([tokens]).fingerprint() == expected


@pytest.mark.parametrize("omit_eos", [True, False])
def test_only_what_is_left_out_has_to_be_there(tmp_path, omit_eos):
    write(str(tmp_path / "train"), [[5, 6, EOS], [7]])
    if omit_eos:
        with pytest.raises(UserError, match="do not end in </s>"):
            load_corpus(str(tmp_path / "train"), Dictionary(), omit_eos=True)
    else:
        assert len(load_corpus(str(tmp_path / "train"), Dictionary(), omit_eos=False)) == 4


def test_fingerprint_tells_texts_apart():
    text = corpus([500])
    other = corpus([500])
    assert text.fingerprint() == other.fingerprint() == corpus([100, 400]).fingerprint()
    assert text.fingerprint() != corpus([501]).fingerprint()
    for place in (3, 490):
        changed = corpus([500])
        changed.dataset[0][place] = 5
        assert text.fingerprint() != changed.fingerprint()


SHORT = [[5, 6, 7, EOS], [EOS], [8, EOS]]


@pytest.mark.parametrize("impl", ["mmap", "lazy", "cached"])
@pytest.mark.parametrize("given", [True, False])
def test_formats(tmp_path, impl, given):
    path = str(tmp_path / "train")
    write(path, SHORT, impl)
    corpus = Corpus(load_indexed_dataset(path, byte_dictionary(), impl if given else None), EOS)
    assert corpus[0 : len(corpus)].tolist() == sum(SHORT, []) and corpus[2:5].tolist() == [7, EOS, EOS]


def test_text_files_are_refused(tmp_path):
    (tmp_path / "valid.None-None").write_text("a b\n")  # as --dataset-impl raw names it
    for impl in (None, "raw"):
        with pytest.raises(UserError, match=r"valid: is a text file of --dataset-impl raw; .*mmap"):
            load_indexed_dataset(str(tmp_path / "valid"), byte_dictionary(), impl)
    for impl in (None, "raw"):
        with pytest.raises(UserError, match="train: the split is missing"):
            load_indexed_dataset(str(tmp_path / "train"), byte_dictionary(), impl)


@pytest.mark.parametrize("append_eos", [True, False])
def test_documents_of_bytes(tmp_path, append_eos):
    """A document is one, however long it is."""
    lengths = [10, ITEM_TOKENS - 1, ITEM_TOKENS, ITEM_TOKENS + 1, 3 * ITEM_TOKENS + 5, 1]
    if not append_eos:
        lengths.remove(ITEM_TOKENS)  # which then cannot be told from the first piece of a longer one …
        lengths.append(ITEM_TOKENS)  # … but at the end
    documents = [(np.arange(n) % 251).astype(np.uint8).tobytes() for n in lengths]
    binarise({"train": documents}, str(tmp_path), append_eos)
    corpus = Corpus(load_indexed_dataset(str(tmp_path / "train"), byte_dictionary()), EOS)
    found = Documents(corpus)
    assert found.sizes.tolist() == [n + append_eos for n in lengths] and len(found) == len(lengths)
    if append_eos:
        without = Corpus(load_indexed_dataset(str(tmp_path / "train"), byte_dictionary()), EOS, omit_eos=True)
        assert len(without) == sum(lengths) and np.diff(without.documents, prepend=0).tolist() == lengths
        assert not bool(without[0 : len(without)].eq(EOS).any())
    first = byte_dictionary().index("<0x00>")
    for document, tokens in zip(documents, found):
        assert tokens[: len(document)].tolist() == [first + byte for byte in document]
