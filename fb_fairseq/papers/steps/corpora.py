"""How the papers' corpora are prepared: steps that make OUT/data of DATA."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fb_fairseq.papers.experiments import bytes_and_letters, char_ptb, translation, wikitext103
from fb_fairseq.papers.steps import PYTHON, Call, Step
from fb_fairseq.papers.steps.data import (
    CORPORA,
    SPLITS,
    checked,
    csv_files,
    first_file,
    preprocess,
    preprocess_bytes,
    subwords,
    unpacked,
)


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


def prepare_text8(call: Call) -> Iterator[Step]:
    """text8's letters, or those of a Wikipedia dump, which is cleaned by text8's rules."""
    dump, text = call.at("text", "unpacked"), call.at("text", "text8")
    yield unpacked(call.data, dump, "text8")
    yield Step("clean the dump", [*PYTHON, f"{CORPORA}.clean_wikipedia", dump, text, "--overwrite"], [text])
    if not call.small:
        yield checked(call, "md5", text, bytes_and_letters.TEXT8_MD5)
    yield preprocess_bytes(call, text)


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
    lines. Small: Multi30k, which is neither."""

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
