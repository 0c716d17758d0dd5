"""``benchmark table5``: what it prints, the bytes it calculates, and the largest batch that fits."""

import importlib.util
import json
import math

import pytest
import torch

from fb_fairseq.models.architectures import TRANSFORMERS
from fb_fairseq.ops import buffers
from fb_fairseq.papers.benchmark.command import main
from fb_fairseq.papers.table5 import command
from fb_fairseq.papers.table5 import task as settings
from fb_fairseq.papers.table5.command import largest_batch, work_bytes
from fb_fairseq.papers.table5.fairseq_tasks import LanguageModelling, Translation
from fb_fairseq.papers.table5.reinforcement_learning import ReinforcementLearning
from fb_fairseq.papers.table5.task import PER_LAYER, PHASES, SHARED, TRANSFORMER

WIDTHS = dict(decoder_embed_dim=12, decoder_ffn_embed_dim=20, decoder_attention_heads=2)
LM_OPTIONS = dict(decoder_layers=3, **WIDTHS, attention_span=6, dropout=0.1)
ADAPTIVE = dict(adaptive_input=True, adaptive_input_cutoff="10", adaptive_softmax_cutoff="10")
TINY = settings.Setting(
    {
        "lm": settings.LanguageModellingSizes("", LM_OPTIONS, vocabulary=30, block=5, steps=2, batch=3),
        "translation": settings.TranslationSizes(2, 3, 12, 20, 2, vocabulary=30, words=7, beam=2, batch=3),
        "rl": settings.ReinforcementLearningSizes(True, dict(width=8, span=6, block=4, layers=3), steps=2, batch=3),
    },
    memory=0.001,
)
CLASSES = {"lm": LanguageModelling, "translation": Translation, "rl": ReinforcementLearning}


@pytest.fixture(autouse=True)
def tiny(monkeypatch, torch_threads):
    monkeypatch.setattr(command, "SMALL", TINY)
    monkeypatch.setattr(buffers, "CHUNK", 4096)  # less than models of this size need


def task(key, **changes):
    return CLASSES[key](TINY.sizes[key]._replace(**changes), "cpu")


def fits_or_not(bytes_of, limit, start):
    """Instead of the search, which has tests of its own: one batch."""
    return start + 1 if bytes_of(start + 1) <= limit else 0


@pytest.mark.not_fast
def test_table(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "largest_batch", fits_or_not)
    out = tmp_path / "out.jsonl"
    main(["table5", "--repeats", "1", "--device", "cpu", "--out", str(out)])
    printed = capsys.readouterr()
    results = json.loads(printed.out.splitlines()[-1])["results"]
    measured = {(r["key"], r["phase"], r["kind"]): r for r in results}
    kinds = {"lm": 3, "translation": 3, "rl": 2}
    assert len(measured) == len(results) == 2 * sum(kinds.values())
    assert all(min(r["speed"], r["speed_at_largest"], 4) > 0 and r["largest_batch"] == 4 for r in results)
    assert measured["lm", "inference", SHARED]["papers"] == 2176
    assert measured["rl", "inference", TRANSFORMER]["papers"] is None
    assert all(r["papers"] is None for r in results if r["kind"] == PER_LAYER)
    for key in ("lm", "translation"):
        state = {kind: measured[key, "inference", kind]["state_bytes"] for kind in task(key).kinds}
        assert state[TRANSFORMER] == state[PER_LAYER] == 3 * state[SHARED]
    assert "language modelling, training: Feedback, per-layer" in printed.out and "3.68" in printed.out
    assert printed.out.count("Shared projections, ") == 2 and "(papers: almost 3)" in printed.out
    assert "translation, inference, Feedback, shared: the largest batch in 0.001 GB" in printed.err
    (line,) = out.read_text().splitlines()
    assert json.loads(line)["results"] == results and json.loads(line)["setting"]["memory"] == 0.001


@pytest.mark.parametrize("key", CLASSES)
def test_state(key):
    """A key and a value in fp32 per step, of each of three layers or shared by all."""
    steps, width = {"lm": (6, 12), "translation": (7, 12), "rl": (6, 8)}[key]
    for kind in task(key).kinds:
        assert task(key).state_bytes(kind) == 2 * steps * width * (1 if kind == SHARED else 3) * 4


@pytest.mark.not_fast
@pytest.mark.parametrize(
    "key,phase",
    [
        ("lm", "training"),
        ("rl", "inference"),
        *(pytest.param(key, "training", marks=pytest.mark.slow) for key in ("translation", "rl")),
        *(pytest.param(key, "inference", marks=pytest.mark.slow) for key in ("lm", "translation")),
    ],
)
def test_largest_batch_is_the_largest(key, phase):
    def bytes_of(batch):
        return work_bytes(lambda: task(key).work(phase, SHARED, batch), "cpu")

    limit = 1.01 * bytes_of(7)
    found = largest_batch(bytes_of, limit, 2)
    assert found >= 7 and bytes_of(found) <= limit < bytes_of(found + 1)


@pytest.mark.parametrize(
    "bytes_of",
    [
        lambda batch: 100 + 7 * batch,
        lambda batch: 100 + 64 * (batch // 9),  # in steps
        lambda batch: batch**1.5,
        lambda batch: 10 * batch if batch < 3000 else math.inf,  # the GPU's memory is full
        lambda batch: 10**9,
    ],
)
@pytest.mark.parametrize("start", [1, 8, 5000])
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
    assert len(measured) <= 25


def test_adaptive_softmax_and_the_full_preset():
    sizes = TINY.sizes["lm"]
    adaptive = LanguageModelling(sizes._replace(options={**LM_OPTIONS, **ADAPTIVE}), "cpu")
    for phase in PHASES:
        work = adaptive.work(phase, PER_LAYER, 2)
        work.prepare()
        work.run()
        assert work.words == 2 * {"training": sizes.block, "inference": sizes.steps}[phase]
    full = LanguageModelling(settings.FULL.sizes["lm"]._replace(vocabulary=30), "cpu")
    assert TRANSFORMERS["wikitext103_large"].items() < full.options.items()


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--memory", "0"], "--memory 0: give a positive number of gigabytes"),
        (["--memory", "1e-6", "--tasks", "rl"], "--memory 1e-06: too small for reinforcement learning, training, Tra"),
        (["--small", "--full"], "argument --full: not allowed with argument --small"),
        (["--out", "/nowhere/out"], "--out /nowhere/out: its folder does not exist"),
        (["--repeats", "0"], "--repeats 0: give 1 or more"),
        (["--embed-dim", "8"], "unrecognized arguments: --embed-dim 8"),
    ],
)
def test_bad_input(refused, arguments, message):
    assert message in refused(main, ["table5", "--device", "cpu", "--repeats", "1", *arguments])


def test_without_fairseq(refused, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    line = refused(main, ["table5", "--device", "cpu"])
    assert "--tasks: lm and translation need fairseq, which is not installed" in line


def test_full_is_the_default_on_a_gpu(monkeypatch):
    seen = []
    monkeypatch.setattr(command, "check", seen.append)
    monkeypatch.setattr(command, "print_report", lambda found, memory: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for options in ([], ["--small"], ["--device", "cpu"], ["--device", "cpu", "--full", "--memory", "3"]):
        parsed = main_args(options)
        parsed.tasks = []
        command.run(parsed)
    assert [(args.small, args.memory) for args in seen] == [(False, 32), (True, 0.001), (True, 0.001), (False, 3)]


def main_args(options):
    from fb_fairseq.papers.benchmark.command import parse

    return parse(["table5", *options])
