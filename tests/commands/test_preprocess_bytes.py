"""Binarised bytes are the text's bytes."""

import bz2
import gzip
import lzma

import pytest
import torch
from fairseq.data import Dictionary, data_utils

from fb_fairseq import byte_codec
from fb_fairseq.commands import preprocess_bytes
from fb_fairseq.errors import UserError


def tokens(folder, split):
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    dataset = data_utils.load_indexed_dataset(str(folder / split), dictionary)
    return dictionary, torch.cat([dataset[i] for i in range(len(dataset))])


def test_documents(tmp_path):
    """Each ends with an end of sentence; the dictionary has all bytes and their counts; no other file is written."""
    first, second = bytes(range(256)) * 40, b"short\n"
    a = tmp_path / "a"
    a.write_bytes(first)
    b = tmp_path / "b"
    b.write_bytes(second)
    out = tmp_path / "out"
    preprocess_bytes.main(["--trainpref", str(a), str(b), "--validpref", str(b), "--destdir", str(out)])
    dictionary, ids = tokens(out, "train")
    assert len(dictionary) == 260 and byte_codec.is_byte_dictionary(dictionary)
    assert ids.eq(dictionary.eos()).nonzero().flatten().tolist() == [len(first), len(first) + 1 + len(second)]
    assert byte_codec.decode(dictionary[i] for i in ids) == first + second
    assert dictionary.get_count(dictionary.index("s")) == 41
    assert byte_codec.decode(dictionary[i] for i in tokens(out, "valid")[1]) == second
    names = {".fb_fairseq-preprocess-bytes", "dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"}
    assert {path.name for path in out.iterdir()} == names


def test_one_text_is_cut_in_three(tmp_path):
    text = bytes(range(250)) * 4
    (tmp_path / "text").write_bytes(text)
    preprocess_bytes.main(["--text", str(tmp_path / "text"), "--split", "8,1,1", "--destdir", str(tmp_path / "out")])
    parts = []
    for split, size in (("train", 800), ("valid", 100), ("test", 100)):
        dictionary, ids = tokens(tmp_path / "out", split)
        assert len(ids) == size
        parts.append(byte_codec.decode(dictionary[i] for i in ids))
    assert b"".join(parts) == text


@pytest.mark.parametrize("shares", ["0,5,5", "8,1,-1", "8,1", "8,1,x", "inf,1,1", "nan,1,1"])
def test_shares_that_are_refused(shares):
    with pytest.raises(UserError, match=f"--split {shares}: must be three numbers greater than 0"):
        preprocess_bytes.split_text(b"text" * 9, shares)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_texts_are_refused(tmp_path, compress, capsys):
    text = tmp_path / "text"
    text.write_bytes(compress(b"BZh is no compressed file" * 9))
    arguments = ["--text", str(text), "--destdir", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        preprocess_bytes.main(arguments)
    assert "is compressed; unpack it with" in capsys.readouterr().err
    text.write_bytes(b"BZh is no compressed file" * 9)
    preprocess_bytes.main(arguments)
