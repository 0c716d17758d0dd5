"""The scripts of examples/ that measure: what they refuse, and which results count."""

import json
import sys

import pytest


@pytest.mark.parametrize(
    "folder,name", [("benchmark", "choices"), ("translation", "decoding_speed"), ("translation", "training_speed")]
)
def test_no_repeats(script, refused, monkeypatch, folder, name):
    monkeypatch.setattr(sys, "argv", [name, "--repeats", "0"])
    assert "--repeats: 0: give a number, 1 or more" in refused(script(name, folder).main)


def test_growth_leaves_other_results_alone(script, tmp_path):
    """Of other options, or of an earlier version."""
    growth = script("growth")
    own = {"setting": {"span": 2}, "tokens_per_second": dict.fromkeys(growth.MODELS, 1.0)}
    others = [{**own, "setting": {"span": 3}}, {**own, "tokens_per_second": {"native": 1.0}}]
    (tmp_path / "out").write_text("\n".join(map(json.dumps, [*others, own])))
    assert growth.results_of(tmp_path / "out", [own["setting"]]) == [own]
