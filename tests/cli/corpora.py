"""Made-up corpora, in the form in which recipes take DATA."""

import csv
import gzip

from tests.cli.conftest import made_up_text
from tests.cli.parallel_text import pairs


def made_up_corpus(name, folder):
    """Write what the recipe ``name`` of a language model takes as DATA, and return its path."""
    if name in ("enwik8", "text8"):
        text = made_up_text(20_000, 1)
        if name == "text8":
            text = b'<mediawiki>\n<page>\n<text xml:space="preserve">' + text + b"[[link|20 words]]</text>\n</page>"
        (folder / "text").write_bytes(text)
        return folder / "text"
    for split in ("train", "valid", "test"):
        text = made_up_text(12_000, 1)
        if name == "char_ptb":
            text += b"the company\n"
        else:  # more words than the last cutoff of the adaptive softmax
            text += b" The " + b" ".join(b"word%d" % i for i in range(8100)) + b"\n"
        (folder / f"{'ptb.' if name == 'char_ptb' else ''}{split}.txt").write_bytes(text)
    return folder


def made_up_parallel_corpus(name, folder):
    """Write what ``--small`` of the recipe ``name`` takes as DATA, and return its path: of cnn_dm a CSV, of translation
    gzipped pairs, as of Multi30k."""
    folder.mkdir()
    if name == "cnn_dm":
        with open(folder / "some.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["article", "highlights", "id"])
            for n in range(330):
                article = made_up_text(400, n).decode()
                writer.writerow([article, "\n".join(article.split("\n")[:2]), n])
        return folder
    for seed, (split, number) in enumerate((("train", 300), ("val", 20), ("test_2016_flickr", 20))):
        for language, text in zip(("de", "en"), zip(*pairs(number, seed))):
            with gzip.open(folder / f"{split}.{language}.gz", "wt") as file:
                file.write("\n".join(text) + "\n")
    return folder
