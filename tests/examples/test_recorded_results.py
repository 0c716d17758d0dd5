"""The results of single runs in examples/results: the tables of results.md are made from them."""

import re
from pathlib import Path

import pytest

from fb_fairseq.recipes.results import grouped, read_runs, spread
from fb_fairseq.reproduction.compare.command import main

REPOSITORY = Path(__file__).parents[2]
RECORDED = sorted((REPOSITORY / "examples/results").iterdir())
METRICS = {  # in the table, by recipe
    "algorithmic": "accuracy",
    "blocked_random_walk": "accuracy",
    "char_ptb": "test_bits_per_token",
    "copy": "accuracy",
    "corridor": "success",
    "enwik8": "test_bits_per_token",
    "iwslt14_de_en": "sacrebleu",
    "maze": "reward",
    "maze_easy": "reward",
    "persistent_memory": "test_bits_per_token",
    "random_walk": "accuracy",
    "reverse": "accuracy",
    "wikitext103": "test_perplexity",
}


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_recorded_results(folder, capsys):
    page = (REPOSITORY / "examples/results.md").read_text()
    for group in grouped(read_runs(str(folder))):
        metric = METRICS[group.identity["recipe"]]
        assert spread(group.values(metric), metric) in page, group.identity
    main([str(folder)])
    assert "| hours | seeds |" in capsys.readouterr().out


def test_readme_figures():
    """The means and spreads of the README are those of the results page."""
    page = (REPOSITORY / "examples/results.md").read_text()
    figures = re.findall(r"[\d.]+ ± [\d.]+", (REPOSITORY / "README.md").read_text())
    assert len(figures) > 5
    assert [figure for figure in figures if figure not in page] == []
