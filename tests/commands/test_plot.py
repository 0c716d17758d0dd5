"""Figures from logs of both kinds and from checkpoints."""

import argparse
import json
import math
import re

import pytest
import torch

from fb_fairseq.commands.plot import checkpoints, logs
from fb_fairseq.commands.plot.command import main, panel_of_curves
from fb_fairseq.commands.plot.logs import continued, read_log
from fb_fairseq.commands.plot.panels import draw_curves
from fb_fairseq.drawing.style import BLUE, VERMILLION

pyplot = pytest.importorskip("matplotlib.pyplot")

LOG = """2026-11-20 10:00:00 | INFO | fairseq_cli.train | {'_name': None, 'loss': 3}
2026-11-20 10:00:01 | INFO | train_inner | {"epoch": 1, "loss": "7.5", "bpb": "7.25", "num_updates": "10"}
2026-11-20 10:00:02 | INFO | train_inner | {"epoch": 1, "loss": "5.5", "bpb": "5.25", "num_updates": "20"}
2026-11-20 10:00:03 | INFO | valid | {"epoch": 1, "valid_loss": "6", "valid_bpb": "5.75", "valid_num_updates": "20"}
"""


SIMPLE = """2026-11-28 01:00:00 | INFO | train_inner | epoch 001:     10 / 99 loss=7.5, bpb=7.25, num_updates=10, wall=1
2026-11-28 01:00:01 | INFO | train_inner | epoch 001:     20 / 99 loss=5.5, bpb=5.25, num_updates=20, wall=2
2026-11-28 01:00:02 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 6 | bpb 5.75 | num_updates 20
2026-11-28 01:00:03 | INFO | fairseq_cli.train | end of epoch 1 (average epoch stats below)
2026-11-28 01:00:03 | INFO | train | epoch 001 | loss 6.5 | bpb 6.25 | num_updates 20 | wall 3
"""


@pytest.mark.parametrize("in_a_file", [False, True])
@pytest.mark.parametrize("log,train", [(LOG, {}), (SIMPLE, {"train": [(20, 6.25)]})], ids=["json", "simple"])
def test_log(tmp_path, log, train, in_a_file):
    """As on the terminal, and as in the file of ``--log-file``. The metric of bytes is drawn by default."""
    path = tmp_path / "train.log"
    path.write_text("".join(line.split(" | ", 3)[-1] + "\n" for line in log.splitlines()) if in_a_file else log)
    assert read_log(str(path), "bpb") == {"train_inner": [(10, 7.25), (20, 5.25)], "valid": [(20, 5.75)], **train}
    assert read_log(str(path), "accuracy") == {}
    main(["--curves", str(path), "--out", str(tmp_path / "x.svg")])
    assert "bits per byte" in (tmp_path / "x.svg").read_text()


def test_the_metric_that_all_logs_have(tmp_path):
    """Loss, where one has no bits per byte."""
    of_bytes, of_words = tmp_path / "bytes.log", tmp_path / "words.log"
    of_bytes.write_text(LOG)
    of_words.write_text(re.sub(r', "(valid_)?bpb": "[^"]*"', "", LOG))
    for paths, metric in (([of_bytes, of_words], "loss"), ([of_bytes, of_bytes], "bpb")):
        curves = [(name, str(path)) for name, path in zip("ab", paths)]
        panel = panel_of_curves(argparse.Namespace(curves=curves, metric=None, x="updates"))
        assert panel.draw.keywords["metric"] == metric


@pytest.mark.parametrize(
    "damaged",
    ['{"loss": "x", "num_updates": "30"}', '{"loss": [], "num_updates": "30"}', '{"loss": "3", "num_updates": "nan"}']
    + [
        '{"wall": "x", "loss": "3", "num_updates": "30"}',
        '{"a":' * 5000,
        "\0{",
        "2026-11-28 01:00:04 | INFO | train_inner | epoch 002:     10 / 99 ",
    ],
)
def test_damaged_lines_are_left_out(tmp_path, damaged):
    path = tmp_path / "train.log"
    path.write_text(damaged + "\n" + LOG + damaged + "\n")
    assert read_log(str(path), "loss") == {"train_inner": [(10, 7.5), (20, 5.5)], "valid": [(20, 6)]}


def test_time_of_epochs_shorter_than_the_interval(tmp_path):
    """Their only times are at their ends."""
    path = tmp_path / "train.log"
    lines = [{"train_loss": 8 - n, "train_num_updates": n, "train_wall": 60 * n} for n in (1, 2)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert read_log(str(path), "loss", "minutes") == {"train": [(1, 7), (2, 6)]}


def test_names_are_text(tmp_path):
    """matplotlib reads mathematics between dollars, and refuses this; and leaves names with _ out of legends."""
    path = tmp_path / "train.log"
    path.write_text(LOG)
    main(["--curves", f"a$^$={path}", f"_b={path}", "--title", r"$\x^$", "--out", str(tmp_path / "x.svg")])
    assert "_b -->" in (tmp_path / "x.svg").read_text()


def test_hours_of_training(tmp_path):
    """The seconds since the start, summed up over restarts."""
    lines = [
        '{"loss": "7", "num_updates": "10", "wall": "1800"}',
        '{"loss": "6", "num_updates": "20", "wall": "3600"}',
        '{"valid_loss": "6.5", "valid_num_updates": "20"}',
        '{"loss": "5", "num_updates": "30", "wall": "900"}',  # after a restart
        '{"valid_loss": "5.5", "valid_num_updates": "30"}',
    ]
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines) + "\n")
    assert read_log(str(path), "loss", "minutes")["valid"] == [(60, 6.5), (75, 5.5)]
    curves = read_log(str(path), "loss", "hours")
    assert curves == {"train_inner": [(0.5, 7), (1, 6), (1.25, 5)], "valid": [(1, 6.5), (1.25, 5.5)]}
    main(["--curves", str(path), "--x", "hours", "--out", str(tmp_path / "hours.png")])
    assert (tmp_path / "hours.png").exists()


def test_layer_weights(tmp_path):
    logits = torch.tensor([0.0, 1.0, 2.0])
    cfg = {"model": {"arch": "feedback_transformer_lm"}}
    torch.save({"model": {"decoder.memory.layer_weights": logits}, "cfg": cfg}, tmp_path / "a.pt")
    assert checkpoints.layer_weights(str(tmp_path / "a.pt")) == pytest.approx(logits.softmax(0).tolist())


def test_finetuning_continues_the_curve():
    """Fine-tuning that counts its updates from 0, and one that goes on counting from an earlier checkpoint."""
    trained, tuned = {"valid": [(50, 3.0), (100, 2.0)]}, {"valid": [(10, 1.9), (20, 1.8)]}
    counting = {"valid": [(60, 1.9), (70, 1.8)]}
    for later in tuned, counting:
        assert continued([trained, later]) == [trained, {"valid": [(110, 1.9), (120, 1.8)]}]
    assert continued([trained, tuned, tuned])[2] == {"valid": [(130, 1.9), (140, 1.8)]}
    _, axes = pyplot.subplots()
    draw_curves(axes, {"a": [trained, tuned], "b": [trained]}, "loss")
    drawn = [(line.get_color(), line.get_linestyle()) for line in axes.get_lines()[:3]]
    assert drawn == [(BLUE, "-"), (BLUE, "--"), (VERMILLION, "-")]
    assert axes.get_legend_handles_labels()[1] == ["a", "b", "validation", "fine-tuning"]


@pytest.mark.parametrize("number", [4, 5])
def test_training_of_many_runs_is_left_out(number):
    curve = [(1, 2.0), (2, 1.0)]
    runs = {f"run{i}": [{"train_inner": curve, "valid": curve}] for i in range(number - 1)}
    runs.update(unvalidated=[{"train_inner": curve}])
    runs["run0"].append({"valid": curve})
    _, axes = pyplot.subplots()
    draw_curves(axes, runs, "loss")
    thin = [line.get_color() for line in axes.lines if line.get_alpha() and len(line.get_xdata())]
    lines, labels = axes.get_legend_handles_labels()
    colors = {label: line.get_color() for line, label in zip(lines, labels)}
    assert (colors["run0"] in thin) == (number == 4) and colors["unvalidated"] in thin
    assert set(colors) == {*runs, "training", "validation", "fine-tuning"}


def test_a_single_curve_has_the_colour_of_the_legend():
    _, axes = pyplot.subplots()
    draw_curves(axes, {"": [{"valid": [(1, 2.0)]}]}, "loss")
    assert {line.get_color() for line in axes.lines} == {BLUE}


def test_the_first_tenth_of_losses_is_cut():
    """Differences between models are visible although losses begin far above them; accuracies are shown whole."""
    start, later = [(1, 12.0), (5, 9.0)], [(10, 4.0), (100, 2.0)]
    for metric, top in (("loss", 4.0), ("ppl", 4.0), ("nll_loss", 4.0), ("accuracy", 12.0)):
        _, axes = pyplot.subplots()
        draw_curves(axes, {"a": [{"valid": start + later}]}, metric)
        bottom, limit = axes.get_ylim()
        assert 1.4 < bottom < 2 and top < limit < 1.1 * top, metric
    _, axes = pyplot.subplots()
    draw_curves(axes, {"diverged": [{"valid": [(1, math.nan), (2, math.inf)]}]}, "loss")


def test_layer_weights_over_training(tmp_path):
    log = tmp_path / "train.log"
    lines = [
        f'{{"valid_loss": "6", "valid_layer_weight_0": "{0.5 + step}", "valid_layer_weight_1": "{0.5 - step}", '
        f'"valid_num_updates": "{int(100 * step)}"}}\n'
        for step in (0.1, 0.2)
    ]
    log.write_text(LOG + "".join(lines))
    layers = logs.read_layer_weights(str(log))
    assert layers == [[(10, 0.6), (20, 0.7)], [(10, 0.4), (20, 0.3)]]
    main(["--layer-weights-over-training", f"run={log}", "--out", str(tmp_path / "weights.png")])
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")


def test_spans(tmp_path):
    path = str(tmp_path / "spans.pt")
    spans = enumerate([[0.0, 0.5], [1.0, 0.1]])
    model = {f"decoder.layers.{l}.self_attn.adaptive_span.z": torch.tensor(z) for l, z in spans}
    options = {"decoder_layers": 2, "attention_span": 100, "adaptive_span_ramp": 8}
    torch.save({"model": model, "cfg": {"model": options}}, path)
    assert checkpoints.adaptive_spans(path) == [[8, 58], [100, 18]]
    main(["--spans", path, f"other={path}", "--out", str(tmp_path / "spans.svg")])
    text = (tmp_path / "spans.svg").read_text()
    assert f"<!-- {path} -->" in text and "<!-- other -->" in text, "without a name, of several, the path"
