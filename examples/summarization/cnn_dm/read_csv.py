"""CNN/DailyMail as CSV (columns article and highlights) to two files of tokens, a pair a line.

    python read_csv.py CSV… --source FILE --target FILE [--skip N] [--take N] [--words 400]

Articles are cut to their first 400 words (v3 §6.3, after See et al. 2017), tokenised as Moses does; the highlights are
joined, each ended by a full stop, so that ROUGE-L can take sentences apart.
"""

import argparse
import csv
import gzip
import itertools
import sys

from sacremoses import MosesTokenizer


def rows(paths):
    """(article, highlights) of CSV files, plain or .gz."""
    csv.field_size_limit(sys.maxsize)
    for path in paths:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if not {"article", "highlights"} <= set(reader.fieldnames or []):
                raise SystemExit(f"error: {path}: no columns article and highlights; give CNN/DailyMail as CSV")
            for row in reader:
                yield row["article"], row["highlights"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="+")
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--skip", type=int, default=0, help="pairs to leave out at the start")
    parser.add_argument("--take", type=int, default=None, help="at most so many pairs")
    parser.add_argument("--words", type=int, default=400, help="of an article")
    args = parser.parse_args()
    tokenizer = MosesTokenizer(lang="en")

    def tokens(text):
        return tokenizer.tokenize(text, return_str=True, escape=False)

    chosen = itertools.islice(rows(args.csv), args.skip, args.take and args.skip + args.take)
    with open(args.source, "w", encoding="utf-8") as source, open(args.target, "w", encoding="utf-8") as target:
        for article, highlights in chosen:
            lines = [line.strip() for line in highlights.splitlines() if line.strip()]
            lines = [line if line.endswith((".", "!", "?")) else f"{line} ." for line in lines]
            source.write(tokens(" ".join(article.split()[: args.words])) + "\n")
            target.write(" ".join(tokens(line) for line in lines) + "\n")


if __name__ == "__main__":
    main()
