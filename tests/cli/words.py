"""A made-up corpus of words, and options of adaptive input and softmax."""

import random

from tests.cli.fairseq_commands import preprocess

ADAPTIVE = dict(
    adaptive_input=True,
    adaptive_input_cutoff="20,50",
    adaptive_softmax_cutoff="20,50",
    tie_adaptive_weights=True,
    tie_adaptive_proj=True,
    no_epoch_checkpoints=True,
)
UNTIED = dict(tie_adaptive_weights=False, tie_adaptive_proj=False)


def write_word_data(folder) -> None:
    """Lines of words, binarised by fairseq-preprocess: about 100 of them, the frequent ones first."""
    draw = random.Random(1)
    words = [f"w{i}" for i in range(100)]
    shares = [1 / (i + 1) for i in range(100)]
    for split, lines in (("train", 300), ("valid", 30)):
        with open(folder / split, "w") as file:
            for _ in range(lines):
                file.write(" ".join(draw.choices(words, shares, k=draw.randint(3, 12))) + "\n")
    preprocess(folder, ("train", "valid"), only_source=True)
