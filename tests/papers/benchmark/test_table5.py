"""``benchmark table5``: what it prints, the bytes it calculates, and the largest batch that fits."""

import argparse
import importlib.util
import json
import math

import pytest
import torch

from fb_fairseq.ops import buffers
from fb_fairseq.papers.benchmark import table5
from fb_fairseq.papers.benchmark.command import main, parse
from fb_fairseq.papers.benchmark.language_modelling import total_loss
from fb_fairseq.papers.benchmark.memory import largest_batch
from fb_fairseq.papers.benchmark.tasks import PER_LAYER, PHASES, SHARED, TRANSFORMER
from tests.papers.benchmark.counted import TINY

ADAPTIVE = dict(adaptive_input=True, adaptive_input_cutoff="10", adaptive_softmax_cutoff="10")


@pytest.fixture(autouse=True)
def tiny(monkeypatch, torch_threads):
    for key, sizes in TINY.items():
        monkeypatch.setattr(table5.find_task(key), "small", sizes)
    monkeypatch.setattr(table5, "SMALL_MEMORY", 0.001)
    monkeypatch.setattr(buffers, "CHUNK", 4096)  # less than models of this size need


def task(key, **changes):
    return table5.find_task(key)({**TINY[key], **changes}, "cpu")


def fits_or_not(bytes_of, limit, start):
    """Instead of the search, which has tests of its own: one batch."""
    return start + 1 if bytes_of(start + 1) <= limit else 0


@pytest.mark.on_ci
def test_table(capsys, monkeypatch):
    monkeypatch.setattr(table5, "largest_batch", fits_or_not)
    main(["table5", "--repeats", "1", "--device", "cpu"])
    printed = capsys.readouterr()
    results = json.loads(printed.out.splitlines()[-1])["results"]
    measured = {(r["key"], r["phase"], r["kind"]): r for r in results}
    kinds = {"lm": 3, "translation": 3, "rl": 2}
    assert len(measured) == len(results) == 2 * sum(kinds.values())
    assert all(min(r["speed"], r["speed_at_largest"], 4) > 0 and r["largest_batch"] == 4 for r in results)
    assert measured["lm", "inference", SHARED]["papers"] == 2176
    assert measured["rl", "inference", TRANSFORMER]["papers"] is None
    assert all(r["papers"] is None for r in results if r["kind"] == PER_LAYER)
    assert "language modelling, training: Feedback, per-layer" in printed.out and "3.68" in printed.out
    assert "translation, inference, Feedback, shared: the largest batch in 0.001 GB" in printed.err


@pytest.mark.parametrize("key", TINY)
def test_state(key):
    """A key and a value in fp32 per step, of each of three layers or shared by all."""
    steps, width = {"lm": (6, 12), "translation": (7, 12), "rl": (6, 8)}[key]
    for kind in task(key).kinds:
        assert task(key).state_bytes(kind) == 2 * steps * width * (1 if kind == SHARED else 3) * 4


@pytest.mark.parametrize("key,numbers", [("lm", (5, 2)), ("translation", (7, 7)), ("rl", (4, 2))])
def test_words_of_a_batch(key, numbers):
    """Those of each stream or sentence, in training and in inference."""
    found = [getattr(task(key), phase)(TRANSFORMER, 3).words for phase in PHASES]
    assert PHASES == ("training", "inference") and found == [3 * number for number in numbers]


@pytest.mark.parametrize(
    "bytes_of",
    [
        lambda batch: 100 + 7 * batch,
        lambda batch: 100 + 64 * (batch // 9),  # in steps
        lambda batch: 10 * batch if batch < 3000 else math.inf,  # the GPU's memory is full
        lambda batch: 10**9,
    ],
)
@pytest.mark.parametrize("start", [1, 5000])
def test_search(bytes_of, start):
    measured = []

    def measure(batch):
        assert batch >= 1 and batch not in measured
        measured.append(batch)
        return bytes_of(batch)

    limit = 40_000
    found = largest_batch(measure, limit, start)
    assert found == 0 or bytes_of(found) <= limit
    assert bytes_of(found + 1) > limit
    assert len(measured) <= 30


def test_total_loss():
    layer, x_BTD = torch.nn.Linear(4, 7), torch.randn(2, 3, 4)
    targets_BT = torch.randint(7, (2, 3))
    decoder = argparse.Namespace(adaptive_softmax=None, output_projection=layer)
    expected = -layer(x_BTD).log_softmax(-1).gather(2, targets_BT[..., None]).sum()
    torch.testing.assert_close(total_loss(decoder, x_BTD, targets_BT), expected)


def test_adaptive_softmax():
    adaptive = task("lm", options={**TINY["lm"]["options"], **ADAPTIVE})
    for phase in PHASES:
        work = getattr(adaptive, phase)(PER_LAYER, 2)
        work.prepare()
        work.run()
        assert work.words == 2 * {"training": 5, "inference": 2}[phase]


def test_too_little_memory(refused, monkeypatch):
    """Nothing is timed before."""
    monkeypatch.setattr(table5, "measure", None)
    words = "table5 --device cpu --repeats 1 --memory 1e-6 --tasks rl".split()
    assert "--memory 1e-06: too small for reinforcement learning, training, Tra" in refused(main, words)


def test_without_fairseq(refused, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    line = refused(main, ["table5", "--device", "cpu"])
    assert "--tasks: lm and translation need fairseq, which is not installed" in line


def test_full_is_the_default_on_a_gpu(monkeypatch):
    monkeypatch.setattr(table5, "TASKS", {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    seen = []
    for options in ([], ["--small"], ["--device", "cpu"], ["--device", "cpu", "--full", "--memory", "3"]):
        args = parse(["table5", *options])
        table5.run(args)
        seen.append((args.small, args.memory))
    assert seen == [(False, 32), (True, 0.001), (True, 0.001), (False, 3)]
