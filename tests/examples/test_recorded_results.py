"""The results of single runs in examples/results: the tables of results.md are made from them."""

from pathlib import Path

import pytest

from fb_fairseq.commands.compare.command import main
from fb_fairseq.commands.compare.runs import grouped, read_runs, spread

REPOSITORY = Path(__file__).parents[2]
RECORDED = sorted((REPOSITORY / "examples/results").iterdir())
METRICS = "success", "reward", "accuracy", "test_bits_per_token"  # one of them is in the table


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_recorded_results(folder, capsys):
    page = (REPOSITORY / "examples/results.md").read_text()
    for group in grouped(read_runs(str(folder))):
        spreads = [spread(group.values(metric), metric) for metric in METRICS if group.values(metric)]
        assert any(text in page for text in spreads), group.identity
    main([str(folder)])
    assert "| hours | seeds |" in capsys.readouterr().out
