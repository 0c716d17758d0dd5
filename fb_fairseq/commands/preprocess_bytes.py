"""Binarise text as bytes, in the format of fairseq-preprocess.

    fb-fairseq preprocess-bytes --trainpref a.txt b.txt --validpref c.txt --destdir DATA-BIN
    fb-fairseq preprocess-bytes --text enwik8 --split 90,5,5 --destdir DATA-BIN

Each file is a document: its bytes, then </s>. With --text, one file is split into train, valid and test, without </s>.
"""

import math
import os
import re
import zlib
from collections.abc import Sequence

import numpy as np
import torch

from fb_fairseq import patches  # noqa: F401  before fairseq is used
from fb_fairseq.byte_codec import ITEM_TOKENS, SYMBOLS
from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.errors import UserError
from fb_fairseq.folders import check_output_folder, own_folder

NAME = "preprocess-bytes"
SPLITS = ("train", "valid", "test")
SHARES = "90,5,5"  # of the splits of a single text
# Programs that unpack compressed files, by what such files begin with.
COMPRESSED = {
    rb"\x1f\x8b": "gunzip",
    rb"PK\x03\x04": "unzip",
    rb"BZh[1-9]1AY&SY": "bunzip2",
    rb"\xfd7zXZ\x00": "unxz",
}


def byte_dictionary(counts: Sequence[int] = (0,) * len(SYMBOLS)):
    """A fairseq dictionary of the 256 bytes, in their order. ``counts``: how often each byte occurs in the training
    split.
    """
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for symbol, count in zip(SYMBOLS, counts):
        dictionary.add_symbol(symbol, n=int(count))
    return dictionary


def write_split(prefix: str, documents: Sequence[bytes], dictionary, append_eos: bool) -> None:
    """Write a split to ``prefix.bin`` and ``prefix.idx``.

    Args:
        prefix: of the two files.
        documents: the bytes of each.
        dictionary: of ``byte_dictionary``.
        append_eos: whether to write ``</s>`` after each document.
    """
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

    first = dictionary.index(SYMBOLS[0])
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    for document in documents:
        ids = torch.frombuffer(bytearray(document), dtype=torch.uint8).int() + first
        if append_eos:
            ids = torch.cat([ids, ids.new_tensor([dictionary.eos()])])
        for item in ids.split(ITEM_TOKENS):
            builder.add_item(item)
    builder.finalize(f"{prefix}.idx")


def binarise(
    splits: dict[str, Sequence[bytes]], destdir: str, append_eos: bool = True, overwrite: bool = False
) -> None:
    """Write ``dict.txt`` and the splits to a folder: all files, or none if there is an error.

    Args:
        splits: documents by name of the split; ``train`` must be among them, for the counts in ``dict.txt``.
        destdir: folder, created if it does not exist.
        append_eos: whether to write ``</s>`` after each document.
        overwrite: see ``fb_fairseq.folders.own_folder``.
    """
    counts = np.zeros(len(SYMBOLS), dtype=np.int64)
    for document in splits["train"]:
        counts += np.bincount(np.frombuffer(document, dtype=np.uint8), minlength=len(SYMBOLS))
    dictionary = byte_dictionary(counts)
    made_from = fingerprint(splits, append_eos)
    with own_folder("--destdir", destdir, NAME, overwrite, made_from=made_from) as temporary:
        for split, documents in splits.items():
            write_split(os.path.join(temporary, split), documents, dictionary, append_eos)
        dictionary.save(os.path.join(temporary, "dict.txt"))
    for split, documents in splits.items():
        size = sum(map(len, documents))
        tokens = size + append_eos * len(documents)
        print(f"{split}: {len(documents)} documents, {size} bytes, {tokens} tokens")


def fingerprint(splits: dict[str, Sequence[bytes]], append_eos: bool) -> str:
    """A line that tells these data from others."""
    sizes = {split: list(map(len, documents)) for split, documents in splits.items()}
    value = zlib.crc32(repr((sizes, append_eos)).encode())
    for documents in splits.values():
        for document in documents:
            value = zlib.crc32(document, value)
    return f"{sum(map(sum, sizes.values()))} bytes, CRC-32 of the texts and their splits {value:08x}"


def read_files(option: str, paths: list[str]) -> list[bytes]:
    """The contents of the files that an option names."""
    contents = []
    for path in paths:
        with open(path, "rb") as file:
            contents.append(file.read())
        if not contents[-1]:
            raise UserError(f"{option} {path}: the file is empty; give one with text, or omit it")
        for beginning, program in COMPRESSED.items():
            if re.match(beginning, contents[-1]):
                raise UserError(f"{option} {path}: is compressed; unpack it with {program}")
    return contents


def split_text(text: bytes, shares: str) -> dict[str, list[bytes]]:
    """Split one text into train, valid and test, in that order. ``shares``: relative sizes of the splits, as in
    ``90,5,5``.
    """
    try:
        sizes = [float(size) for size in shares.split(",")]
    except ValueError:
        sizes = []
    if len(sizes) != len(SPLITS) or not all(size > 0 for size in sizes) or sum(sizes) == math.inf:
        raise UserError(f"--split {shares}: must be three numbers greater than 0, for example 90,5,5")
    ends = np.rint(np.cumsum([0] + sizes) / sum(sizes) * len(text)).astype(int)
    if not all(first < last for first, last in zip(ends, ends[1:])):
        raise UserError(f"--text: {len(text)} bytes are too few for --split {shares}; give a longer text")
    return {name: [text[first:last]] for name, first, last in zip(SPLITS, ends, ends[1:])}


def build_parser() -> CommandParser:
    """The command's options."""
    parser = CommandParser(NAME, description=__doc__)
    parser.add_argument("--trainpref", nargs="+", metavar="FILE", help="documents of the training split")
    parser.add_argument("--validpref", nargs="+", metavar="FILE", default=[], help="documents of the validation split")
    parser.add_argument("--testpref", nargs="+", metavar="FILE", default=[], help="documents of the test split")
    parser.add_argument("--text", metavar="FILE", help="instead of documents: a single text to split, without </s>")
    parser.add_argument(
        "--split",
        metavar="SHARES",
        help=f"relative sizes of train, valid and test, for --text (default: {SHARES})",
    )
    parser.add_argument("--no-eos", action="store_true", help="no </s>: the files are parts of one text, not documents")
    parser.add_argument("--destdir", required=True, metavar="FOLDER", help="folder to write to")
    add_overwrite(parser)
    return parser


def read_splits(args) -> dict[str, list[bytes]]:
    """The documents that the options name, by split."""
    if args.text:
        (text,) = read_files("--text", [args.text])
        return split_text(text, args.split or SHARES)
    splits = {split: read_files(f"--{split}pref", getattr(args, f"{split}pref")) for split in SPLITS}
    return {split: documents for split, documents in splits.items() if documents}


def main(argv=None) -> None:
    """Run the command; see ``--help``."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.split and not args.text:
        parser.error("--split: is of --text; give both, or leave it out")
    if bool(args.text) == bool(args.trainpref) or args.text and (args.validpref or args.testpref):
        parser.error("give either --trainpref (and --validpref, --testpref), or --text")
    with parser.one_line_errors():
        check_output_folder("--destdir", args.destdir)
        binarise(read_splits(args), args.destdir, not (args.no_eos or args.text), args.overwrite)
