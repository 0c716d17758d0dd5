"""Convert CNN/DailyMail from CSV (columns article and highlights) to two files of tokens, one text per line.

    read_csv CSV… --source FILE --target FILE [--skip N] [--take N]

Articles are cut to their first 400 words (v3 §6.3, after See et al. 2017); both sides are tokenised with Moses' rules.
A summary is the highlights of an article, with missing full stops added so that ROUGE-Lsum can split it into sentences.
"""

import argparse
import csv
import gzip
import itertools
import sys
import zlib

from sacremoses import MosesTokenizer

WORDS = 400  # of an article
CLOSING = "\"'`’”)]"  # what may follow the full stop of a sentence


def rows(paths):
    """Yield (article, highlights) from CSV files, plain or .gz."""
    csv.field_size_limit(sys.maxsize)
    for path in paths:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            try:
                if not {"article", "highlights"} <= set(reader.fieldnames or []):
                    raise SystemExit(f"error: {path}: has no columns article and highlights; give CNN/DailyMail as CSV")
                for row in reader:
                    if None in (row["article"], row["highlights"]):
                        raise problem(path, f"row {reader.line_num} lacks a column, or the file ends too early")
                    yield row["article"], row["highlights"]
            except EOFError:  # gzip's
                raise problem(path, "ends too early") from None
            except (csv.Error, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
                raise problem(path, f"is no intact CSV in UTF-8 ({error})") from None


def problem(path, text):
    """The error for a damaged file."""
    return SystemExit(f"error: {path}: {text}; give an intact copy")


def sentences_of(highlights):
    """The lines of highlights, each with a full stop if it has no end of a sentence."""
    lines = filter(None, map(str.strip, highlights.splitlines()))
    return [line if line.rstrip(CLOSING).endswith((".", "!", "?")) else f"{line} ." for line in lines]


def main():
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="+", help="CSV files, plain or .gz, read in this order")
    parser.add_argument("--source", required=True, help="file to write the articles to")
    parser.add_argument("--target", required=True, help="file to write the summaries to")
    parser.add_argument("--skip", type=int, default=0, help="number of pairs to skip (default: %(default)s)")
    parser.add_argument("--take", type=int, default=None, help="maximum number of pairs to write (default: all)")
    args = parser.parse_args()
    tokenizer = MosesTokenizer(lang="en")

    def tokenise(text):
        return tokenizer.tokenize(text, return_str=True, escape=False)

    stop = None if args.take is None else args.skip + args.take
    chosen = itertools.islice(rows(args.csv), args.skip, stop)
    with open(args.source, "w", encoding="utf-8") as source, open(args.target, "w", encoding="utf-8") as target:
        for article, highlights in chosen:
            source.write(tokenise(" ".join(article.split()[:WORDS])) + "\n")
            target.write(" ".join(tokenise(line) for line in sentences_of(highlights)) + "\n")


if __name__ == "__main__":
    main()
