"""The benchmark's commands: the JSON that they print, whatever the times in it."""

import argparse
import json

import pytest
import torch

from fb_fairseq.ops import buffers
from fb_fairseq.papers.benchmark import comparisons, timing, work
from fb_fairseq.papers.benchmark.command import main, parse
from fb_fairseq.papers.benchmark.memory import peak_bytes, saved_bytes
from fb_fairseq.papers.benchmark.models import MODELS, build_model

SMALL = "--layers 2 --embed-dim 16 --heads 2 --ffn-dim 16 --span 20 --batch-size 4 --device cpu".split()
BLOCK = ("--block", "10", "--repeats", "1")


pytestmark = pytest.mark.usefixtures("torch_threads")


def results(capsys, *arguments):
    main([arguments[0], *SMALL, *arguments[1:]])
    return json.loads(capsys.readouterr().out.splitlines()[-1])["results"]


def test_decode(capsys):
    found = results(capsys, "decode", "--steps", "200")
    sizes = {name: set(result["state_bytes"]) for name, result in found.items()}
    slots = 4 * 16 * 20 * 4  # streams x width x slots x bytes
    assert sizes["feedback, keys-values"] == {2 * slots} and sizes["feedback, vectors"] == {slots}
    assert sizes["transformer, keys-values"] == {4 * slots} and sizes["transformer, vectors"] == {2 * slots}


def test_train(capsys):
    found = results(capsys, "train", *BLOCK)
    assert {"cpp", "all-attention"} <= found.keys()
    for each in found.values():
        assert each["relative"] == pytest.approx(
            each["tokens_per_second"] / found["transformer"]["tokens_per_second"], abs=1e-4
        )
        assert each["peak_bytes"] > each["saved_bytes"] > 0
    assert found["cpp"]["carried_bytes"] == 20 * 4 * 16 * 4 == found["transformer"]["carried_bytes"] // 2


@pytest.mark.on_ci
def test_loops_that_do_not_run_are_left_out(capsys):
    found = results(capsys, "train", *BLOCK, "--dtype", "bf16")
    assert {"reference", "transformer"} <= found.keys() and not any("cpp" in name for name in found)
    with pytest.raises(SystemExit):
        results(capsys, "train", *BLOCK, "--dtype", "bf16", "--only", "cpp")
    assert "--only 'cpp': not measured here" in capsys.readouterr().err


@pytest.mark.on_ci
def test_memory(capsys, monkeypatch):
    monkeypatch.setattr(buffers, "CHUNK", 4096)  # less than a model of this size needs
    found = results(capsys, "train", "--block", "60", "--batch-size", "16", "--repeats", "1")
    peaks = {name: each["peak_bytes"] for name, each in found.items()}
    assert peaks["cpp, recomputing"] < peaks["cpp"] < peaks["reference"]
    assert peaks["transformer, recomputing"] < peaks["transformer"]


@pytest.mark.parametrize("name", MODELS)
def test_sizes_of_models(name):
    """All-attention has as many persistent vectors as the others have hidden units."""
    args = parse(["train", *SMALL, "--heads", "4"])
    options = build_model(name, args).options
    sizes = (options.decoder_layers, options.decoder_embed_dim, options.decoder_attention_heads, options.attention_span)
    assert sizes == (2, 16, 4, 20)
    assert (options.persistent_memory_size if name == "all-attention" else options.decoder_ffn_embed_dim) == 16


def test_blocks_have_as_many_tokens():
    cases = comparisons.blocks(argparse.Namespace(block=10, batch_size=8))
    sizes = [(case.sizes["block"], case.sizes["batch_size"]) for case in cases.values()]
    assert sizes == [size for size in ((5, 16), (10, 8), (20, 4), (40, 2)) for _ in range(3)]
    assert "transformer, 40 steps of 2 streams" in cases


def test_spans_are_halved():
    """Down to 8; a shorter one is measured alone."""
    cases = {span: comparisons.spans(argparse.Namespace(span=span)) for span in (32, 8, 5)}
    assert [name for name in cases[32] if name.startswith("feedback")] == [f"feedback, span {n}" for n in (32, 16, 8)]
    assert list(cases[8]) == [f"{name}, span 8" for name in MODELS] and len(cases[5]) == len(MODELS)


@pytest.mark.on_ci
def test_spans(capsys):
    found = results(capsys, "train", *BLOCK, "--compare", "spans")
    for name in ("feedback", "transformer", "all-attention"):
        kept = [found[f"{name}, span {span}"]["saved_bytes"] for span in (20, 10, 5)]
        assert kept == sorted(kept, reverse=True) and kept[0] > kept[-1]
    assert len(found) == 9


@pytest.mark.on_ci
def test_blocks(capsys):
    """Blocks of half to four times the length, of as many tokens."""
    found = results(capsys, "train", "--block", "4", "--batch-size", "8", "--repeats", "1", "--compare", "blocks")
    sizes = {2: 16, 4: 8, 8: 4, 16: 2}
    models = ("feedback, shared", "feedback, per-layer", "transformer")
    assert set(found) == {f"{m}, {block} steps of {n} streams" for m in models for block, n in sizes.items()}
    carried = [found[f"transformer, {block} steps of {n} streams"]["carried_bytes"] for block, n in sizes.items()]
    assert carried == [2 * 20 * n * 16 * 4 for n in sizes.values()]


def test_tracking(capsys):
    words = "tracking --models feedback lstm --group S3 --longest 4 --tokens 16 --repeats 1 --device cpu".split()
    main(words)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(found["results"]) == {"feedback", "lstm"} and found["setting"]["group"] == "S3"
    assert all(each.keys() == {"training", "decoding"} and min(each.values()) > 0 for each in found["results"].values())


def test_median_of_an_even_number(monkeypatch):
    times = iter((1.0, 4.0))
    monkeypatch.setattr(timing, "seconds", lambda function, device: next(times))
    assert timing.interleaved_medians([int], "cpu", repeats=2) == [2.5]


@pytest.mark.parametrize("device,times,expected", [("cuda:1", 1, 4), ("cuda", 9, 9), ("cpu", 2, 2)])
def test_graphs_are_captured_before_anything_is_timed(monkeypatch, device, times, expected):
    """On a GPU, where that needs several calls."""
    monkeypatch.setattr(work.GRAPHS, "capture_at", 3)
    calls = []
    work.repeated(lambda: calls.append(1), device, times)()
    assert len(calls) == expected


def test_peak_bytes():
    """The peak, not the sum of all allocations."""

    def function():
        x = torch.ones(1000)
        y = x + 1
        del x
        return y + 1

    assert peak_bytes(function, "cpu") == pytest.approx(8000, abs=64)


def test_saved_bytes():
    """Each tensor counts once; parameters, and views of them, do not count."""
    x = torch.randn(10, 10, requires_grad=True)
    layer = torch.nn.Linear(10, 10)
    assert saved_bytes(lambda: (x * 2).exp().exp(), layer) == 2 * 400  # each exp keeps its result
    assert saved_bytes(lambda: layer(x), layer) == 400


@pytest.mark.parametrize(
    "words,message",
    [
        ("decode --repeats 2", "unrecognized arguments: --repeats 2"),
        ("tracking --curriculum mixed", "unrecognized arguments: --curriculum mixed"),
        ("decode --heads 3", "--heads 3: does not divide --embed-dim 256"),
        ("train --only faster", "--only 'faster': not measured here; choose from 'reference'"),
        (
            "train --compare blocks --batch-size 6",
            "--batch-size 6 --block 64: give a multiple of 4, and an even number",
        ),
        ("table5 --memory 0", "--memory 0: give a positive number of gigabytes"),
        ("table5 --memory inf", "--memory inf: give a positive number of gigabytes"),
    ],
)
def test_bad_input(refused, monkeypatch, words, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert message in refused(main, words.split())


def test_only_some_loops(capsys):
    """And the Transformer that they are compared with."""
    for more, names in (
        (["--only", "reference"], {"reference", "transformer"}),
        (["--compare", "spans", "--only", "feedback, span 5"], {"feedback, span 5", "transformer, span 20"}),
    ):
        assert set(results(capsys, "train", *BLOCK, *more)) == names
