"""The results of single runs in examples/results: the tables of its pages are made from them."""

import json
import re
from pathlib import Path

import pytest

from fb_fairseq.papers.compare import main
from fb_fairseq.papers.figures.state_tracking import best_results, table
from fb_fairseq.papers.results.runs import grouped, read_runs
from fb_fairseq.papers.results.words import spread

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "examples/results"
STATE_TRACKING = RESULTS / "state_tracking"
STATE_TRACKING_PAGE = REPOSITORY / "docs/state-tracking.md"
RECORDED = sorted(path for path in RESULTS.iterdir() if path.is_dir() and path != STATE_TRACKING)
TOPICS = [path.read_text(encoding="utf-8") for path in (*RESULTS.glob("*.md"), STATE_TRACKING_PAGE)]
METRICS = {  # in the table, by recipe
    **dict.fromkeys("algorithmic blocked_random_walk copy counting random_walk reverse".split(), "accuracy"),
    **dict.fromkeys("char_ptb enwik8 persistent_memory text8".split(), "test_bits_per_token"),
    **dict.fromkeys("maze maze_easy water_maze".split(), "reward"),
    "cnn_dm": "rougeL",
    "corridor": "success",
    "iwslt14_de_en": "sacrebleu",
    **dict.fromkeys(
        "wikitext103 wikitext103_ablation wikitext103_end_of_line wikitext103_training_time".split(), "test_perplexity"
    ),
    "wmt14_en_de": "decoded_tokens_per_second",  # of random parameters
}


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_all_means_are_on_one_page(folder, capsys):
    """And the folder's own table has a column of hours where times were recorded."""
    runs = read_runs(str(folder))
    means = []
    for group in grouped(runs):
        metric = METRICS[group.identity["recipe"]]
        values = group.values(metric)
        assert values, group.identity
        means.append(spread(values, metric))
    missing = [[mean for mean in means if mean not in page] for page in TOPICS]
    assert [] in missing, min(missing, key=len)
    main([str(folder)])
    assert ("| hours | seeds |" in capsys.readouterr().out) == any("seconds" in run for run in runs)


@pytest.mark.parametrize("folder", sorted(STATE_TRACKING.iterdir()), ids=lambda folder: folder.name)
def test_state_tracking(folder):
    """The page has the tables of all runs."""
    runs = json.loads((folder / "results.json").read_text()).values()
    lines = table(best_results(runs))[2:]
    page = STATE_TRACKING_PAGE.read_text(encoding="utf-8")
    assert lines and [line for line in lines if line not in page] == []


def test_page_has_test_and_validation_bits():
    """Of models with persistent vectors: the figure shows both."""
    page = (RESULTS / "all-attention.md").read_text(encoding="utf-8")
    for group in grouped(read_runs(str(RESULTS / "all_attention"))):
        measured = [spread(group.values(f"{split}_bits_per_token"), "bits") for split in ("test", "dev")]
        assert "{} ({}) |".format(*measured) in page.replace("*", ""), group.identity


@pytest.mark.parametrize("page", ["README.md", "examples/results.md"])
def test_figures_of_overviews(page):
    """The means and spreads are those of the pages with one topic each."""
    figures = re.findall(r"[\d.]+ ± [\d.]+", (REPOSITORY / page).read_text())
    assert len(figures) > 5
    assert [figure for figure in figures if figure not in "\n".join(TOPICS)] == []


def test_all_pages_are_listed():
    """The page with the glance links to every other one, and each links back."""
    index = RESULTS.with_suffix(".md").read_text(encoding="utf-8")
    pages = list(RESULTS.glob("*.md"))
    assert len(pages) > 5
    for page in pages:
        assert f"](results/{page.name})" in index
        assert "[All results](../results.md)" in page.read_text(encoding="utf-8")
