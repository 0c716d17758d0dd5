"""Steps that prepare data: check, unpack and binarise text. Texts go to OUT/text, binarised data to OUT/data."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fb_fairseq.papers.steps import PYTHON, Call, Step
from fb_fairseq.papers.steps.words import words

SPLITS = ("train", "valid", "test")
CORPORA = "fb_fairseq.papers.experiments.corpora"


def first_file(call: Call, *names: str) -> str:
    """The first of these files that is in the folder DATA; the first name if there is none."""
    paths = [os.path.join(call.data, name) for name in names]
    return next(filter(os.path.exists, paths), paths[0])


def unpacked(source: str, target: str, member: str = "") -> Step:
    """Copy a plain file, unpack a .gz, or extract a member from a .zip.

    Args:
        source: the file.
        target: where its content goes.
        member: of a .zip that has several.
    """
    does = f"unpack {os.path.basename(target)}"
    commands = {".gz": ["gzip", "-dc", source], ".zip": [*PYTHON, f"{CORPORA}.extract", source, member]}
    command = commands.get(os.path.splitext(source)[1])
    if command:
        return Step(does, command, [target], [source], output=target)
    return Step(does, ["cp", source, target], [target], [source])


def checked(call: Call, kind: str, path: str, wanted: object, reads: Sequence[str] = ()) -> Step:
    """Check a file.

    Args:
        call: the call of the recipe.
        kind: ``md5``; ``lines``: that it is UTF-8 text with so many lines; ``least``: with as many or more.
        path: the file.
        wanted: the checksum, or the number of lines.
        reads: see ``Step``.
    """
    name = os.path.basename(path)
    out = call.at("text", f"{name}.{kind}")
    command = [*PYTHON, "fb_fairseq.papers.steps.check", kind, path, wanted]
    return Step(f"check {name}", command, [out], reads, output=out)


def preprocess(
    call: Call,
    name: str,
    text: str,
    splits: Sequence[str],
    options: Mapping[str, Any],
    reads: Sequence[str] = (),
) -> Step:
    """Binarise text in words to OUT/NAME.

    Args:
        call: the call of the recipe.
        name: folder in OUT to write.
        text: folder of the text.
        splits: names of the training, validation and test file in it; of two languages, without their ends.
        options: further ones of fairseq-preprocess.
        reads: the files of the text that are the user's; see ``Step``.
    """
    command: list[object] = ["fairseq-preprocess"]
    for split, file in zip(SPLITS, splits):
        command += [f"--{split}pref", os.path.join(text, file)]
    command += ["--destdir", call.at(name), "--workers", 1, *words(options)]
    sides = [f".{options[side]}" for side in ("source_lang", "target_lang") if side in options]
    dictionaries = [call.at(name, f"dict{side}.txt") for side in sides or [""]]
    return Step(f"binarise {name}", command, dictionaries, reads)


def preprocess_bytes(call: Call, text: str, reads: Sequence[str] = ()) -> Step:
    """Binarise the bytes of a file to OUT/data: 90 % for training, 5 % each for validation and testing."""
    command = [*PYTHON, "fb_fairseq", "preprocess-bytes", "--text", text, "--split", "90,5,5"]
    command += ["--destdir", call.at("data"), "--overwrite"]  # of a call that was killed, say
    return Step("binarise the text", command, [call.at("data", "dict.txt")], reads, log=call.at("data.log"))


def subwords(call: Call, pair: Sequence[str], merges: int) -> Iterator[Step]:
    """Learn one BPE code from both languages of OUT/text/train.tok.xx, apply it to all splits, and binarise them.

    Args:
        call: the call of the recipe.
        pair: source and target language, xx.
        merges: number of symbols to learn.
    """
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
