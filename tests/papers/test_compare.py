"""``fb-fairseq compare``: means and spreads over seeds, in the papers' tables and in one of all results."""

import json
import math
import re

import pytest

from fb_fairseq.papers.compare import main
from fb_fairseq.papers.results.words import spread
from fb_fairseq.papers.values import load


def write(folder, *runs, **more):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps({str(i): {**run, **more} for i, run in enumerate(runs)}))


def ptb(model, seed, bits, small=False, **more):
    run = {"recipe": "char_ptb", "small": small, "model": model, "seed": seed, "finetuned": True}
    return {**run, "dev_bits_per_token": bits + 0.02, "test_bits_per_token": bits, "seconds": 3600, **more}


def compared(capsys, *folders):
    main([*map(str, folders)])
    return capsys.readouterr().out


def cells(text, start):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_means_and_spreads(tmp_path, capsys):
    """Over seeds, from several folders; a seed that is in two of them counts once."""
    feedback = "feedback_transformer_lm_char_ptb"
    first, second, third = (ptb(feedback, seed, 1.1 + seed / 10, layers=2) for seed in (1, 2, 3))
    write(tmp_path / "a", first, second, ptb(feedback, 1, 9, layers=6))
    write(tmp_path / "b", second, third)
    text = compared(capsys, tmp_path / "a", tmp_path / "b")
    assert "## v1 Table 2 (§4.3): Character-level Penn Treebank" in text and "the paper's setting" in text
    row = cells(text, "Feedback Transformer, 2 layers (10.7M)")
    assert row[1:5] == ["1.181", "1.320 ± 0.100", "1.16", "1.300 ± 0.100"]
    assert row[5:] == [f"{feedback}, 2 layers, fine-tuned", "3"]
    assert cells(text, "Transformer, 6 layers (10.7M)")[2] == "", "not run"
    assert cells(text, f"{feedback}, 6 layers, fine-tuned")[1:] == ["9.020", "9.000", "1.00", "1"]
    assert "v1 Table 5" not in text, "nothing of ours belongs there"


@pytest.mark.parametrize(
    "metric,values,text",
    [
        ("test_perplexity", [21.204, 21.4], "21.30 ± 0.14"),
        ("test_bits_per_token", [1.16049], "1.160"),
        ("nll_loss", [1.1, 1.2, 1.3], "1.200 ± 0.100"),
        ("training_days", [0.99904, 0.00196], "0.5005 ± 0.7050"),
        ("training_days", [1.0], "1.00"),
        ("training_days", [0.5, 2.0], "1.25 ± 1.06"),
        ("accuracy", [], "–"),
        ("accuracy", [1.0, math.inf], "nan"),
    ],
)
def test_digits(metric, values, text):
    assert spread(values, metric) == text


def test_hardware(tmp_path, capsys):
    """Named once below the table whose hours it took."""
    runs = [ptb("feedback_transformer_lm_char_ptb", seed, 1.2, hardware="Some CPU, 2 threads") for seed in (1, 2)]
    write(tmp_path, *runs, ptb("feedback_transformer_lm_char_ptb", 3, 1.2, hardware="Some GPU"))
    text = compared(capsys, tmp_path)
    assert text.endswith("| 3 |\n\nMeasured on Some CPU, 2 threads; Some GPU.\n")


def test_updates(tmp_path, capsys):
    """The fewest and the most, where runs of one group were stopped at different ones."""
    runs = [ptb("a", seed, 1.2, num_updates=updates) for seed, updates in ((1, 4000), (2, 3500), (3, 12000))]
    write(tmp_path, *runs, ptb("b", 1, 1.3, num_updates=500))
    text = compared(capsys, tmp_path)
    assert cells(text, "a, fine-tuned")[-3:] == ["3,500 to 12,000", "1.00 ± 0.00", "3"]
    assert cells(text, "b, fine-tuned")[-3:] == ["500", "1.00", "1"]


def test_settings_that_differ_are_different_rows(tmp_path, capsys):
    """Any setting but the seed, also one that no name shows; what differs is added to names that would be equal."""
    run = {"settings": {"lr": "0.1", "clip_norm": "1", "longest": "4"}, "num_updates": 5}
    runs = [ptb("a", seed, 1.0 + seed / 10, **run) for seed in (1, 2)]
    runs += [ptb("a", 1, 2.0, **{**run, "settings": {**run["settings"], name: "2"}}) for name in run["settings"]]
    runs += [ptb("a", 1, 3.0, **run, **more) for more in ({"test_streams": 8}, {"updates": 9}, {"lr": 0.5})]
    write(tmp_path, *runs)
    text = compared(capsys, tmp_path)
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| a,")]
    own = "a, fine-tuned, clip_norm 1, longest 4, lr 0.1"
    assert rows[0] == own and cells(text, f"{own} ")[2] == "1.150 ± 0.071" and len(set(rows)) == len(rows) == 7
    assert rows[1:] == [
        "a, fine-tuned, clip_norm 1, longest 4, lr 2",
        "a, fine-tuned, clip_norm 2, longest 4, lr 0.1",
        "a, fine-tuned, clip_norm 1, longest 2, lr 0.1",
        f"{own}, test_streams 8",
        f"{own}, updates 9",
        "a, fine-tuned, clip_norm 1, longest 4, lr 0.5",
    ]
    write(tmp_path, *runs[:2])
    assert cells(compared(capsys, tmp_path), "a, fine-tuned")[2] == "1.150 ± 0.071", "nothing to tell apart"


def test_small_results_are_not_the_papers(tmp_path, capsys):
    """They stand in the rows of the same models, and the table says that they are not comparable."""
    write(tmp_path, ptb("feedback_transformer_lm", 1, 2.1, small=True, layers=2))
    text = compared(capsys, tmp_path)
    assert "the recipe's small setting, which is not comparable" in text
    assert cells(text, "Feedback Transformer, 2 layers")[4] == "2.100" and "## char_ptb, small setting" in text


def test_translation(tmp_path, capsys):
    """The deep encoder has a row at both scales; a metric that only the paper has no column of ours."""
    for small in (False, True):
        run = {"recipe": "wmt14_en_de", "small": small, "model": "deep-encoder", "layers": 2, "seed": 1}
        write(tmp_path / str(small), {**run, "compound_split_bleu": 20.5})
        text = compared(capsys, tmp_path / str(small))
        row = cells(text, "Feedback Transformer, 12 encoder and 2 decoder layers")
        assert row[1:] == ["29.0", "20.50", "", "deep-encoder, 2 layers", "1"]
        assert cells(text, "Feedback Transformer, 1 decoder layer")[3] == "4.2"
        assert "v1 §4.2" not in text, "nothing of ours belongs there"


SHALLOW = "| Feedback Transformer, 1 decoder layer"
SPEED = {"recipe": "wmt14_en_de", "small": False, "model": "feedback", "hardware": "a GPU", "projections": "shared"}
DEEP = {**SPEED, "layers": 6, "decoded_tokens_per_second": 100.0, "settings": {"decoder_layers": "6", "width": "8"}}
ONE = {**SPEED, "layers": 1, "decoded_tokens_per_second": 390.0, "settings": {"decoder_layers": "1", "width": "8"}}


def speedups(text):
    """The papers' figures and ours of one decoder layer."""
    return [line.split(" | ")[2:4] for line in text.splitlines() if line.startswith(SHALLOW)]


def test_decoding_speed(tmp_path, capsys):
    """Of one layer, relative to six."""
    write(tmp_path, {**ONE, "seed": 2}, DEEP, ONE)
    text = compared(capsys, tmp_path)
    assert speedups(text) == [["4.2", "3.90"], ["3.7", "3.90"]]
    assert "ours | our run" in text and text.endswith("Measured on a GPU.\n")


def test_decoding_speed_that_was_not_measured_again(tmp_path, capsys):
    """The first of two runs with the same seed counts."""
    write(tmp_path / "a", DEEP, ONE)
    write(tmp_path / "b", {name: value for name, value in DEEP.items() if name != "decoded_tokens_per_second"})
    assert speedups(compared(capsys, tmp_path)) == [["4.2", "3.90"], ["3.7", "3.90"]]


@pytest.mark.parametrize(
    "deep,one",
    [
        ({}, {"hardware": "another"}),
        ({}, {"projections": "per-layer"}),
        ({}, {"settings": {"width": "16"}}),
        ({}, {"decoded_tokens_per_second": "390"}),
        ({"decoded_tokens_per_second": 0}, {}),
    ],
)
def test_decoding_speed_of_other_models(tmp_path, capsys, deep, one):
    """Only of the same model and settings, measured on the same hardware, as a number."""
    write(tmp_path, {**DEEP, **deep}, {**ONE, **one})
    assert "3.90" not in compared(capsys, tmp_path)


def test_sizes_of_the_data_choose_the_row(tmp_path, capsys):
    run = {"recipe": "algorithmic", "small": False, "model": "streaming_lstm_lm", "layers": 4, "seed": 1}
    write(tmp_path, {**run, "data": "--variables 5 --train 10000", "accuracy": 40.0})
    text = compared(capsys, tmp_path)
    assert cells(text, "LSTM, 5 variables")[1:3] == ["32.1", "40.00"] and cells(text, "LSTM, 3 variables")[2] == ""


@pytest.mark.parametrize(
    "content,message",
    [
        (None, "has no results.json; give the output folder of a recipe"),
        ("{", "results.json: cannot be read; run the recipe's last step again"),
        ('{"a": {"test_perplexity": 3}}', "its results do not name their recipe; run the recipe again"),
        ('{"a": {"recipe": "copy"}}', "its results do not name their recipe"),
        ("{}", "its results do not name their recipe"),
        *((damaged, "") for damaged in ("[1]", '{"a": 3}')),
    ],
)
def test_bad_folders(tmp_path, capsys, content, message):
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    with pytest.raises(SystemExit) as stop:
        main([str(tmp_path)])
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and re.search(message, line) and str(tmp_path) in line


def test_papers_tables_are_well_formed():
    """Every row has figures for the table's metrics only, and matches name a model."""
    for table in load("results"):
        assert {"table", "where", "title", "recipe", "metrics", "rows"} == set(table)
        for row in table["rows"]:
            assert set(row) <= {"name", "parameters", "match", "small", *table["metrics"]}, row
            for key in ("match", "small"):
                assert key not in row or "model" in row[key], row
    names = [(table["table"], table["title"], table["recipe"]) for table in load("results")]
    assert len(set(names)) == len(names)


def test_odd_measurements(tmp_path, capsys):
    """Of runs that diverged: NaN is not left out of a mean. Text where a number belongs is left out."""
    runs = [ptb("a", seed, bits) for seed, bits in enumerate((1.0, math.nan, 2.0))]
    runs += [ptb("b", 1, 1.0), ptb("b", 2, math.inf)]
    runs += [ptb("c", 1, 1.5, num_updates=math.inf, seconds="long")]
    write(tmp_path, *runs, hardware=3)
    text = compared(capsys, tmp_path)
    assert cells(text, "a, fine-tuned")[1:3] == ["nan", "nan"] and cells(text, "b, fine-tuned")[1:3] == ["nan", "nan"]
    assert cells(text, "c, fine-tuned")[2:5] == ["1.500", "", "–"] and "Measured on 3." in text
