"""The scripts of examples/ that measure: what they refuse, and which results they draw."""

import json
import sys

import pytest

SPEEDS = {"cpp": 1.0, "reference": 1.0, "transformer": 2.0}


@pytest.mark.parametrize(
    "folder,name", [("benchmark", "choices"), ("translation", "decoding_speed"), ("translation", "training_speed")]
)
def test_no_repeats(script, refused, monkeypatch, folder, name):
    monkeypatch.setattr(sys, "argv", [name, "--repeats", "0"])
    assert "--repeats: 0: give a number, 1 or more" in refused(script(name, folder).main)


def test_growth_draws_what_it_measures(script, monkeypatch, tmp_path):
    """Not results of other options, or of an earlier version."""
    growth = script("growth")
    drawn = []
    monkeypatch.setattr(growth, "SIZES", {"span": [2]})
    monkeypatch.setattr(growth, "tokens_per_second", lambda args: SPEEDS)
    monkeypatch.setattr(growth, "draw_figure", lambda path, panels, command: drawn.extend(panels))
    out = tmp_path / "growth.jsonl"
    words = ["growth.py", "--out", str(out), "--figure", str(tmp_path / "growth.png")]
    monkeypatch.setattr(sys, "argv", [*words, "--block", "4"])
    growth.main()
    former = {"setting": json.loads(out.read_text())["setting"], "tokens_per_second": {"native": 1.0}}
    out.write_text(json.dumps(former) + "\n" + out.read_text())
    for block in ("8", "4"):
        monkeypatch.setattr(sys, "argv", [*words, "--block", block])
        growth.main()
        (result,) = drawn[-1].draw.keywords["results"]
        assert result["setting"]["block"] == int(block) and result["tokens_per_second"] == SPEEDS
    assert len(out.read_text().splitlines()) == 3
