"""The search for options of generation."""

import json
import sys

from fb_fairseq.papers.results import translate


def test_the_length_penalty_first_and_then_the_lengths(tmp_path, monkeypatch):
    """The best of each on the validation set; the test set is translated once."""
    tried = []

    def score(run, generate, subset, chosen, *options):
        tried.append((subset, " ".join(chosen), generate, options))
        return {"bleu": 3 - abs(float(chosen[1]) - 1) - abs(float(chosen[3]) - 60) / 60}

    monkeypatch.setattr(translate, "translate", score)
    words = ["de", "sacrebleu", "bleu", "0.5 1.0 2.0", "--min-len 10; --min-len 50; --min-len 99", "raw", "DATA"]
    monkeypatch.setattr(sys, "argv", ["translate", f"{tmp_path}/run", *words])
    translate.main()
    lengths = [("0.5", 10), ("1.0", 10), ("2.0", 10), ("1.0", 50), ("1.0", 99)]
    validation = ("--language", "de", "--metrics", "sacrebleu")
    expected = [("valid", f"--lenpen {a} --min-len {b}", ["DATA"], validation) for a, b in lengths]
    test = ("test", "--lenpen 1.0 --min-len 50", ["DATA"], ("--language", "de", "--raw-ref", "raw"))
    assert tried == [*expected, test]
    scores = json.loads((tmp_path / "run.scores").read_text())
    assert scores == {"bleu": scores["dev_score"], "lenpen": 1.0, "min_len": 50.0, "dev_score": 3 - 10 / 60}
