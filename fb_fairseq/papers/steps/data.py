"""Steps that prepare data: check, unpack and binarise text; and what they make of DATA for each of the papers' corpora.
Texts go to OUT/text, binarised data to OUT/data.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments import char_ptb, translation, wikitext103
from fb_fairseq.papers.experiments.settings import words
from fb_fairseq.papers.steps import PYTHON, Call, Step

SPLITS = ("train", "valid", "test")
CORPORA = "fb_fairseq.papers.experiments.corpora"


def first_file(call: Call, *names: str) -> str:
    """The first of these files that is in the folder DATA; the first name if there is none."""
    paths = [os.path.join(call.data, name) for name in names]
    return next(filter(os.path.exists, paths), paths[0])


def unpacked(source: str, target: str, member: str = "") -> Step:
    """Copy a plain file, unpack a .gz, or extract a member, or the only file, from a .zip."""
    does = f"unpack {os.path.basename(target)}"
    commands = {".gz": ["gzip", "-dc", source], ".zip": [*PYTHON, f"{CORPORA}.extract", source, member]}
    command = commands.get(os.path.splitext(source)[1])
    if command:
        return Step(does, command, [target], [source], output=target)
    return Step(does, ["cp", source, target], [target], [source])


def checked(call: Call, kind: str, path: str, wanted: object, reads: Sequence[str] = ()) -> Step:
    """Check the ``md5`` of a file, or that it is UTF-8 text with a number of ``lines`` (``least``: or more)."""
    name = os.path.basename(path)
    out = call.at("text", f"{name}.{kind}")
    command = [*PYTHON, "fb_fairseq.papers.steps.check", kind, path, wanted]
    return Step(f"check {name}", command, [out], reads, output=out)


def preprocess(call: Call, name: str, text: str, splits: Sequence[str], options: Mapping[str, Any]) -> Step:
    """Binarise text in words, files in the folder ``text``, to OUT/NAME. ``splits``: the names, or their beginnings, of
    the training, validation and test file.

    Args:
        call: the call of the recipe.
        name: folder in OUT to write.
        options: further ones of fairseq-preprocess.
    """
    command: list[object] = ["fairseq-preprocess"]
    for split, file in zip(SPLITS, splits):
        command += [f"--{split}pref", os.path.join(text, file)]
    command += ["--destdir", call.at(name), "--workers", 1, *words(options)]
    sides = [f".{options[side]}" for side in ("source_lang", "target_lang") if side in options]
    return Step(f"binarise {name}", command, [call.at(name, f"dict{side}.txt") for side in sides or [""]])


def preprocess_bytes(call: Call, text: str, reads: Sequence[str] = ()) -> Step:
    """Binarise the bytes of a file to OUT/data: 90 % for training, 5 % each for validation and testing."""
    command = [*PYTHON, "fb_fairseq", "preprocess-bytes", "--text", text, "--split", "90,5,5"]
    command += ["--destdir", call.at("data"), "--overwrite"]  # of a call that was killed, say
    return Step("binarise the text", command, [call.at("data", "dict.txt")], reads, log=call.at("data.log"))


def subwords(call: Call, pair: Sequence[str], merges: int) -> Iterator[Step]:
    """Learn one BPE code from both languages of OUT/text/train.tok.xx, apply it to all splits, and binarise them."""
    both = call.at("text", "train.tok")
    codes = call.at("text", "codes")
    yield Step("join both sides", ["cat", *(f"{both}.{language}" for language in pair)], [both], output=both)
    command = ["subword-nmt", "learn-bpe", "--symbols", merges, "--input", both]
    yield Step("learn subwords", command, [codes], output=codes)
    for language in pair:
        for split in SPLITS:
            source, target = (call.at("text", f"{split}.{kind}.{language}") for kind in ("tok", "bpe"))
            command = ["subword-nmt", "apply-bpe", "--codes", codes, "--input", source]
            yield Step(f"subwords of {split}.{language}", command, [target], output=target)
    options = {"joined_dictionary": True, "source_lang": pair[0], "target_lang": pair[1]}
    yield preprocess(call, "data", call.at("text"), [f"{split}.bpe" for split in SPLITS], options)


def csv_files(call: Call) -> list[str]:
    """The CSV files in the folder DATA."""
    names = sorted(os.listdir(call.data)) if os.path.isdir(call.data) else ["articles.csv"]
    found = [os.path.join(call.data, name) for name in names if name.endswith((".csv", ".csv.gz"))]
    if not found:
        raise UserError(f"DATA {call.data}: no *.csv or *.csv.gz in this folder; give another")
    return found


def prepare_ptb(call: Call) -> Iterator[Step]:
    """Every character is a token, and _ separates words; the end of a line is fairseq's </s>."""
    for split, md5 in char_ptb.MD5.items():
        text, characters = (call.at("text", f"{split}.{kind}") for kind in ("words", "chars"))
        yield unpacked(first_file(call, f"ptb.{split}.txt", f"ptb.{split}.txt.gz"), text)
        if not call.small:
            yield checked(call, "md5", text, md5)
        yield Step(f"characters of {split}", [*PYTHON, f"{CORPORA}.characters", text, characters], [characters])
    yield preprocess(call, "data", call.at("text"), [f"{split}.chars" for split in SPLITS], {"only_source": True})


def prepare_bytes(corpus: str, md5: str) -> Callable[[Call], Iterator[Step]]:
    """The bytes of a corpus or, with ``--small``, of any text."""

    def prepare(call: Call) -> Iterator[Step]:
        text = call.at("text", corpus)
        yield unpacked(call.data, text, corpus)
        if not call.small:
            yield checked(call, "md5", text, md5)
        yield preprocess_bytes(call, text)

    return prepare


def prepare_wikitext(call: Call) -> Iterator[Step]:
    """Its words."""
    if not call.small:
        yield checked(call, "md5", call.data, wikitext103.MD5, [call.data])
    for split in SPLITS:
        names = (f"{split}.txt", f"{split}.txt.gz", f"wiki.{split}.tokens")
        source = first_file(call, *names) if call.small else call.data
        yield unpacked(source, call.at("text", f"{split}.words"), f"wikitext-103/wiki.{split}.tokens")
    yield preprocess(call, "data", call.at("text"), [f"{split}.words" for split in SPLITS], {"only_source": True})


def prepare_pair(
    pair: Sequence[str], splits: Sequence[str], lines: Sequence[int], **options: Any
) -> Callable[[Call], Iterator[Step]]:
    """A corpus of translation that is tokenised and split into subwords already: files of these names, with so many
    lines. Small: Multi30k, which is neither.
    """

    def prepare(call: Call) -> Iterator[Step]:
        if not call.small:
            for name, number in zip(splits, lines):
                for language in pair:
                    path = os.path.join(call.data, f"{name}.{language}")
                    yield checked(call, "lines", path, number, [path])
            languages = {"source_lang": pair[0], "target_lang": pair[1]}
            yield preprocess(call, "data", call.data, splits, {**options, **languages})
            return
        for split, name in zip(SPLITS, ("train", "val", "test_2016_flickr")):
            for language in pair:
                raw, tokens = (call.at("text", f"{split}.{kind}.{language}") for kind in ("raw", "tok"))
                yield unpacked(os.path.join(call.data, f"{name}.{language}.gz"), raw)
                command = ["sacremoses", "-q", "-l", language, "tokenize"]  # Moses' rules
                yield Step(f"tokenise {split}.{language}", command, [tokens], source=raw, output=tokens)
        yield from subwords(call, pair, 4000)

    return prepare


def prepare_cnn_dm(call: Call) -> Iterator[Step]:
    """Tokenise both sides of CSV files, split them into subwords and binarise them; small: of any such files."""
    held_out = translation.HELD_OUT
    for split, (name, number) in translation.PAIRS.items():
        taken = {"test": ("--take", held_out), "valid": ("--skip", held_out, "--take", held_out)}
        options = taken.get(split, ("--skip", 2 * held_out)) if call.small else ()
        files = csv_files(call) if call.small else [first_file(call, f"{name}.csv", f"{name}.csv.gz")]
        article, summary = (call.at("text", f"{split}.tok.{side}") for side in translation.SIDES)
        command = [*PYTHON, f"{CORPORA}.read_csv", *files, *options, "--source", article, "--target", summary]
        yield Step(f"read {split}", command, [article, summary], files)
        kind, wanted = ("least", held_out) if call.small else ("lines", number)
        yield checked(call, kind, article, wanted)
    yield from subwords(call, translation.SIDES, 2000 if call.small else 32_000)
