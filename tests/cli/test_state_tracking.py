"""The recipes of state tracking, from training to the figure."""

import json

from tests.cli.recipes import PNG, recipe  # noqa: F401

QUICK = ["--longest", "4", "--updates", "3", "--", "--width", "16", "--tokens", "32"]


def test_word_problem(tmp_path, recipe):  # noqa: F811
    """Models, memory compositions and learning rates; again, it trains nothing; other options are refused."""
    out = tmp_path / "out"
    given = ["--group", "S3", "--models", "feedback lstm previous", "--lrs", "0.01 0.02", "--out", out, *QUICK]
    first = recipe("word_problem", *given)
    assert first.out.count("at least 90 % right up to length") == 6
    results = json.loads((out / "results.json").read_text())
    names = {entry["name"] for entry in results["settings"]}
    assert names == {"Feedback Transformer", "Feedback Transformer, memory previous", "LSTM"}
    for entry in results["settings"]:
        assert set(entry["accuracy"]) == {"0.5x", "1x", "4x", "16x"} and entry["seeds"] == [1]
        assert entry["decoding"] > 0 and entry["training"] > 0 and entry["lr"] in (0.01, 0.02)
    assert (out / "accuracy.png").read_bytes().startswith(PNG)
    log = (out / "feedback-lr0.01-seed1.log").read_text()
    assert "update 3 of 3" in log
    recipe("word_problem", *given)
    assert "update 3 of 3" not in (out / "feedback-lr0.01-seed1.log").read_text()
    given[given.index("16")] = "32"
    refused = recipe("word_problem", *given, fails=True).errors
    assert "was made with --width 16, not 32; give another --out" in refused


def test_recall(tmp_path, recipe):  # noqa: F811
    recipe("recall", "--models", "transformer", "--no-speed", "--out", tmp_path, *QUICK)
    (entry,) = json.loads((tmp_path / "results.json").read_text())["settings"]
    assert set(entry["accuracy"]) == {"0.5x", "1x", "4x"} and "decoding" not in entry
