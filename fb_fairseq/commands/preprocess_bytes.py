"""``python -m fb_fairseq preprocess-bytes``: binarise text as bytes, in the form of ``fairseq-preprocess``.

Each file is a document: its bytes, then ``</s>``. See ``fb_fairseq/byte_codec.py``.
"""

import argparse
import os
import shutil
import tempfile
from typing import List, Sequence

import numpy as np
import torch

from fb_fairseq import patches  # noqa: F401  before fairseq is used
from fb_fairseq.byte_codec import SYMBOLS

# Items of the indexed dataset; a stream reads across them. Small ones, because fairseq converts a whole item
# to read a part of it.
ITEM_BYTES = 4096


def byte_dictionary(counts: Sequence[int] = (0,) * 256):
    """A fairseq dictionary of the 256 bytes, in their order, with these counts."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for symbol, count in zip(SYMBOLS, counts):
        dictionary.add_symbol(symbol, n=int(count))
    return dictionary


def write_split(prefix: str, documents: Sequence[bytes], dictionary, append_eos: bool) -> int:
    """Write ``prefix.bin`` and ``prefix.idx``; returns the number of tokens."""
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

    first = dictionary.index(SYMBOLS[0])
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    tokens = 0
    for document in documents:
        ids = torch.frombuffer(bytearray(document), dtype=torch.uint8).int() + first
        if append_eos:
            ids = torch.cat([ids, ids.new_tensor([dictionary.eos()])])
        for item in ids.split(ITEM_BYTES):
            builder.add_item(item)
        tokens += len(ids)
    builder.finalize(f"{prefix}.idx")
    return tokens


def binarise(splits: dict, destdir: str, append_eos: bool = True) -> None:
    """Write ``dict.txt`` and the splits (name to documents) to a folder, all of it or nothing."""
    counts = np.zeros(256, dtype=np.int64)
    for document in splits["train"]:
        counts += np.bincount(np.frombuffer(document, dtype=np.uint8), minlength=256)
    dictionary = byte_dictionary(counts)
    os.makedirs(destdir, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=".preprocess_bytes", dir=destdir)
    try:
        for split, documents in splits.items():
            tokens = write_split(os.path.join(scratch, split), documents, dictionary, append_eos)
            print(f"{split}: {len(documents)} documents, {sum(map(len, documents))} bytes, {tokens} tokens")
        dictionary.save(os.path.join(scratch, "dict.txt"))
        for name in os.listdir(scratch):
            os.replace(os.path.join(scratch, name), os.path.join(destdir, name))
    finally:
        shutil.rmtree(scratch)


def read(paths: List[str], parser: argparse.ArgumentParser, name: str) -> List[bytes]:
    documents = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                documents.append(file.read())
        except OSError as error:
            parser.error(f"{name} {path}: {error.strerror}; give a file that can be read")
        if not documents[-1]:
            parser.error(f"{name} {path}: the file is empty; give one with text, or leave it out")
    return documents


def cut(text: bytes, fractions: str, parser: argparse.ArgumentParser) -> dict:
    """Cut one text into train, valid and test, in that order."""
    try:
        shares = [float(share) for share in fractions.split(",")]
    except ValueError:
        shares = []
    if len(shares) != 3 or min(shares) <= 0:
        parser.error(f"--split {fractions}: give three shares above 0, as 90,5,5")
    ends = np.rint(np.cumsum([0] + shares) / sum(shares) * len(text)).astype(int)
    if not all(first < last for first, last in zip(ends, ends[1:])):
        parser.error(f"--text: {len(text)} bytes are too few to be split {fractions}; give a longer text")
    return {name: [text[first:last]] for name, first, last in zip(("train", "valid", "test"), ends, ends[1:])}


def main(args=None) -> None:
    parser = argparse.ArgumentParser(prog="python -m fb_fairseq preprocess-bytes", description=__doc__)
    parser.add_argument("--trainpref", nargs="+", metavar="FILE", help="documents to train on")
    parser.add_argument("--validpref", nargs="+", metavar="FILE", default=[], help="documents to validate on")
    parser.add_argument("--testpref", nargs="+", metavar="FILE", default=[], help="documents to test on")
    parser.add_argument("--text", metavar="FILE", help="instead: one text, cut by --split; no </s> is added")
    parser.add_argument("--split", default="90,5,5", help="shares of train, valid and test (default: %(default)s)")
    parser.add_argument("--no-eos", action="store_true", help="the files are parts of a text: add no </s>")
    parser.add_argument("--destdir", required=True, help="folder to write to")
    options = parser.parse_args(args)
    if bool(options.text) == bool(options.trainpref):
        parser.error("give either --trainpref (and --validpref, --testpref), or --text")
    if options.text:
        (text,) = read([options.text], parser, "--text")
        splits = cut(text, options.split, parser)
    else:
        splits = {
            name: read(getattr(options, f"{name}pref"), parser, f"--{name}pref") for name in ("train", "valid", "test")
        }
        splits = {name: documents for name, documents in splits.items() if documents}
    binarise(splits, options.destdir, append_eos=not (options.no_eos or options.text))


if __name__ == "__main__":
    main()
