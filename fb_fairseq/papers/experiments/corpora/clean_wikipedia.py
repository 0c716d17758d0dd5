"""Convert a Wikipedia dump (enwik8, enwik9) to the form of text8: words of the letters a to z between single spaces.

    python -m fb_fairseq.papers.experiments.corpora.clean_wikipedia DUMP OUT [--bytes 100000000]

The rules are those of Matt Mahoney, the author of text8 (http://mattmahoney.net/dc/textdata.html, public domain). They
keep the text that a reader of the page sees, including link texts and captions, and remove tables, references and
markup; digits are spelled out. text8 is the first 100,000,000 bytes of the result for enwik9; enwik8 is too short.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from typing import BinaryIO

from fb_fairseq.command_line import CommandParser, add_overwrite
from fb_fairseq.files import atomic_write, check_output_file

Rule = tuple["re.Pattern[bytes]", bytes]


def rule(pattern: bytes, replacement: bytes, flags=0) -> Rule:
    """Compile a pattern, and return it with its replacement."""
    return re.compile(pattern, flags), replacement


MARKUP = [
    rule(rb"<.*>", b""),  # the tag that ends the piece, from the first "<" on its line
    rule(rb"&amp;", b"&"),
    rule(rb"&lt;", b"<"),
    rule(rb"&gt;", b">"),
    rule(rb"<ref[^<]*</ref>", b""),
    rule(rb"<[^>]*>", b""),
    rule(rb"\[http:[^] ]*", b"["),
    rule(rb"\|thumb", b"", re.I),
    rule(rb"\|left", b"", re.I),
    rule(rb"\|right", b"", re.I),
    rule(rb"\|\d+px", b"", re.I),
    rule(rb"\[\[image:[^\[\]]*\|", b"", re.I),
    rule(rb"\[\[category:([^|\]]*)[^]]*\]\]", rb"[[\1]]", re.I),
    rule(rb"\[\[[a-z\-]*:[^\]]*\]\]", b""),  # links to this page in other languages
    rule(rb"\[\[[^\|\]]*\|", b"[["),  # the target of a link that has a text
    rule(rb"\{\{[^\}]*\}\}", b""),
    rule(rb"\{[^\}]*\}", b""),
    rule(rb"[\[\]]", b""),
    rule(rb"&[^;]*;", b" "),
]
SPELLED_DIGITS = [
    rule(str(digit).encode(), b" %s " % name)
    for digit, name in enumerate(b"zero one two three four five six seven eight nine".split())
]
NOT_LETTERS = re.compile(rb"[^a-z]+")


def pieces(file: BinaryIO, size: int = 1 << 20) -> Iterator[bytes]:
    """Split the dump after every ``>``, reading ``size`` bytes at a time."""
    rest = b""
    while True:
        chunk = file.read(size)
        *whole, rest = (rest + chunk).split(b">")
        for piece in whole:
            yield piece + b">"
        if not chunk:
            if rest:
                yield rest
            return


def clean(file: BinaryIO) -> Iterator[bytes]:
    """Yield the cleaned text of a dump, piece by piece."""
    inside = False  # between <text …> and </text>, in a page that is no redirect
    for piece in pieces(file):
        if b"<text " in piece:
            inside = True
        if b"#redirect" in piece.lower():
            inside = False
        if not inside:
            continue
        if b"</text>" in piece:
            inside = False
        for number, (pattern, replacement) in enumerate(MARKUP):
            piece = pattern.sub(replacement, piece, count=number == 0)  # the first rule is applied once
        piece = b" " + piece.lower() + b" "
        for pattern, replacement in SPELLED_DIGITS:
            piece = pattern.sub(replacement, piece)
        yield NOT_LETTERS.sub(b" ", piece)[:-1]


def main() -> None:
    """Run the command."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("dump", help="Wikipedia dump in XML, such as enwik9")
    parser.add_argument("out", help="text file to write")
    text = "maximum size of OUT in bytes (default: %(default)s, the size of text8)"
    parser.add_argument("--bytes", type=int, default=100_000_000, help=text)
    add_overwrite(parser)
    args = parser.parse_args()
    with parser.one_line_errors():
        check_output_file("OUT", args.out, "clean-wikipedia", args.overwrite)  # (plain text names no writer)
    try:
        dump = open(args.dump, "rb")
    except OSError as error:
        parser.error(f"{args.dump}: {error.strerror}; give a Wikipedia dump, for example enwik9")
    written = 0
    with dump, atomic_write(args.out) as temporary, open(temporary, "wb") as out:
        for text in clean(dump):
            written += out.write(text[: args.bytes - written])
            if written == args.bytes:
                break
        if not written:  # no dump
            dump.seek(0)
            shutil.copyfileobj(dump, out)
    print(f"{args.out}: {written} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
