"""A Wikipedia dump (enwik8, enwik9) to text8's form: words of a to z, a single blank between them.

    python examples/language_modeling/text8/clean_wikipedia.py DUMP OUT [--bytes 100000000]

The rules are those by which Matt Mahoney made text8 (http://mattmahoney.net/dc/textdata.html, public domain): what a
reader of the page sees, with link texts and captions, without tables, references and markup; digits are spelled out.
text8 is the first 100,000,000 bytes of what enwik9 gives; enwik8 alone gives too little.
"""

import argparse
import os
import re
import sys


def rule(pattern: bytes, replacement: bytes, flags=0):
    return re.compile(pattern, flags), replacement


SIGHT = [
    rule(rb"<.*>", b""),  # the tag that ends this piece, and what is on the same line after an earlier "<"
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
    rule(rb"\[\[[a-z\-]*:[^\]]*\]\]", b""),  # the same page in other languages
    rule(rb"\[\[[^\|\]]*\|", b"[["),  # where a link leads, if it has a text
    rule(rb"\{\{[^\}]*\}\}", b""),
    rule(rb"\{[^\}]*\}", b""),
    rule(rb"[\[\]]", b""),
    rule(rb"&[^;]*;", b" "),
]
DIGITS = [
    rule(str(digit).encode(), b" %s " % name)
    for digit, name in enumerate(b"zero one two three four five six seven eight nine".split())
]
NO_LETTERS = re.compile(rb"[^a-z]+")


def pieces(file, size: int = 1 << 20):
    """The dump in pieces that end with ">"."""
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


def clean(file):
    """The text of a dump, in pieces."""
    inside = False
    for piece in pieces(file):
        if b"<text " in piece:
            inside = True
        if b"#redirect" in piece.lower():
            inside = False
        if not inside:
            continue
        if b"</text>" in piece:
            inside = False
        for number, (pattern, replacement) in enumerate(SIGHT):
            piece = pattern.sub(replacement, piece, count=number == 0)  # the first rule once only
        piece = b" " + piece.lower() + b" "
        for pattern, replacement in DIGITS:
            piece = pattern.sub(replacement, piece)
        yield NO_LETTERS.sub(b" ", piece)[:-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump")
    parser.add_argument("out")
    parser.add_argument("--bytes", type=int, default=100_000_000, help="at most so many (default: text8's)")
    args = parser.parse_args()
    try:
        dump = open(args.dump, "rb")
    except OSError as error:
        parser.error(f"{args.dump}: {error.strerror}; give a Wikipedia dump, for example enwik9")
    written = 0
    with dump, open(args.out + ".tmp", "wb") as out:
        for text in clean(dump):
            written += out.write(text[: args.bytes - written])
            if written == args.bytes:
                break
    if not written:
        os.remove(args.out + ".tmp")
        parser.error(f"{args.dump}: no <text …> in it; give a Wikipedia dump, for example enwik9")
    os.replace(args.out + ".tmp", args.out)
    print(f"{args.out}: {written} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
