"""The steps that make OUT/data of DATA, for each of the papers' corpora."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fb_fairseq.errors import UserError
from fb_fairseq.papers.experiments import char_ptb, summarization, wikitext103
from fb_fairseq.papers.steps import PYTHON, Call, Step
from fb_fairseq.papers.steps.data import (
    CORPORA,
    SPLITS,
    checked,
    first_file,
    preprocess,
    preprocess_bytes,
    subwords,
    unpacked,
)


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
    """The bytes of a corpus or, with ``--small``, of any text.

    Args:
        corpus: the name of its file, in a .zip too.
        md5: of this file.
    """

    def prepare(call: Call) -> Iterator[Step]:
        text = call.at("text", corpus)
        yield unpacked(call.data, text, corpus)
        if not call.small:
            yield checked(call, "md5", text, md5)
        yield preprocess_bytes(call, text)

    return prepare


def prepare_wikitext(call: Call) -> Iterator[Step]:
    """The words of wikitext-103-v1.zip or, with ``--small``, of three files of any text."""
    if not call.small:
        yield checked(call, "md5", call.data, wikitext103.MD5, [call.data])
    for split in SPLITS:
        names = (f"{split}.txt", f"{split}.txt.gz", f"wiki.{split}.tokens")
        source = first_file(call, *names) if call.small else call.data
        yield unpacked(source, call.at("text", f"{split}.words"), f"wikitext-103/wiki.{split}.tokens")
    yield preprocess(call, "data", call.at("text"), [f"{split}.words" for split in SPLITS], {"only_source": True})


def prepare_pair(pair: Sequence[str], lines: Mapping[str, int], **options: Any) -> Callable[[Call], Iterator[Step]]:
    """A corpus of translation that is tokenised and split into subwords already; with ``--small``, Multi30k.

    Args:
        pair: source and target language.
        lines: of its training, validation and test files, by their names without the language.
        options: of fairseq-preprocess.
    """

    def prepare(call: Call) -> Iterator[Step]:
        if call.small:
            yield from prepare_multi30k(call, pair)
            return
        files = []
        for name, number in lines.items():
            for language in pair:
                path = os.path.join(call.data, f"{name}.{language}")
                yield checked(call, "lines", path, number, [path])
                files.append(path)
        languages = {"source_lang": pair[0], "target_lang": pair[1]}
        yield preprocess(call, "data", call.data, list(lines), {**options, **languages}, files)

    return prepare


def prepare_multi30k(call: Call, pair: Sequence[str]) -> Iterator[Step]:
    """Multi30k, tokenised and split into subwords. ``pair``: source and target language."""
    for split, name in zip(SPLITS, ("train", "val", "test_2016_flickr")):
        for language in pair:
            raw, tokens = (call.at("text", f"{split}.{kind}.{language}") for kind in ("raw", "tok"))
            yield unpacked(os.path.join(call.data, f"{name}.{language}.gz"), raw)
            command = ["sacremoses", "-q", "-l", language, "tokenize"]  # Moses' rules
            yield Step(f"tokenise {split}.{language}", command, [tokens], source=raw, output=tokens)
    yield from subwords(call, pair, 4000)


def prepare_cnn_dm(call: Call) -> Iterator[Step]:
    """Tokenise both sides of CSV files, split them into subwords and binarise them; small: of any such files."""
    held_out = summarization.HELD_OUT
    for split, (name, number) in summarization.PAIRS.items():
        taken = {"test": ("--take", held_out), "valid": ("--skip", held_out, "--take", held_out)}
        options = taken.get(split, ("--skip", 2 * held_out)) if call.small else ()
        files = csv_files(call) if call.small else [first_file(call, f"{name}.csv", f"{name}.csv.gz")]
        article, summary = (call.at("text", f"{split}.tok.{side}") for side in summarization.SIDES)
        command = [*PYTHON, f"{CORPORA}.read_csv", *files, *options, "--source", article, "--target", summary]
        yield Step(f"read {split}", command, [article, summary], files)
        kind, wanted = ("least", held_out) if call.small else ("lines", number)
        yield checked(call, kind, article, wanted)
    yield from subwords(call, summarization.SIDES, 2000 if call.small else 32_000)
