"""fairseq-eval-lm by words, from a model of pieces of words: the same for every cut into streams and blocks."""

import random
import re
from collections import Counter

import pytest

from tests.cli.fairseq_commands import PLUGIN, preprocess, train

TASK = ["--user-dir", PLUGIN, "--task", "streaming_lm", "--cpu", "--gen-subset", "valid"]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """Data of words of one to four pieces, a checkpoint, and the lines of the validation split."""
    folder, draw = tmp_path_factory.mktemp("pieces"), random.Random(1)
    for split, lines in (("train", 80), ("valid", 20)):
        text = [["@@ ".join(draw.choices("abcde", k=draw.randint(1, 4))) for _ in range(7)] for _ in range(lines)]
        (folder / split).write_text("".join(" ".join(words) + "\n" for words in text))
    preprocess(folder, ("train", "valid"), only_source=True)
    train(folder / "bin", folder, max_update=2, disable_validation=True)
    return folder / "bin", folder / "checkpoint_last.pt", (folder / "valid").read_text().splitlines()


@pytest.fixture
def evaluate(commands, pieces):
    """Evaluate with further options: the loss in bits, and the lines of the log."""

    def run_command(*arguments):
        result = commands.run("fairseq-eval-lm", pieces[0], *TASK, "--path", pieces[1], *arguments)
        assert result.status == 0, result.errors
        log = [line.partition("| fairseq_cli.eval_lm | ")[2] for line in result.out]
        return float(re.search(r"Loss \(base 2\): ([\d.]+)", log[-1])[1]), log

    return run_command


@pytest.mark.parametrize("tokens,streams", [(10_000, 1), (3, 1), (5, 3)])
def test_loss_and_counts(evaluate, pieces, tokens, streams):
    cut = ["--tokens-per-sample", tokens, "--valid-streams", streams]
    words = [line.replace("@@ ", "").split() + ["</s>"] for line in pieces[2]]
    count, piece_count = sum(map(len, words)), sum(len(line.split()) + 1 for line in pieces[2])
    plain, _ = evaluate(*cut)
    loss, log = evaluate(*cut, "--remove-bpe", "--output-word-stats", "--output-word-probs")
    assert loss == pytest.approx(plain * piece_count / count, abs=2e-3) and loss > 1.2 * plain
    stats = [line.split("\t") for line in log if line.count("\t") == 5]
    assert {word: int(times) for word, times, *_ in stats} == Counter(sum(words, []))
    assert sum(float(row[2]) for row in stats) == pytest.approx(-loss * count * 0.693147, rel=1e-3)
    printed = [re.findall(r"(\S+) \[", line.partition(" ")[2]) for line in log if re.match(r"\d+ \S+ \[", line)]
    assert printed == words, "a line of the text each"
    assert evaluate(*cut, "--post-process", "@@ ")[0] == loss
