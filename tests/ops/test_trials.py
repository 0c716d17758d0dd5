"""Trials take the fastest candidate that agrees with the first, say so in one line, and processes choose alike."""

import time

import pytest
import torch

from fb_fairseq.ops import trials
from fb_fairseq.ops.trials import agreed, ranking

CPU = torch.device("cpu")
REFERENCE = [[torch.linspace(1, 2, 10), torch.full((3,), 1e-7)], [torch.ones(4)]]


def slow(seconds, result=REFERENCE):
    def setup():
        def run():
            time.sleep(seconds)
            return result

        return run

    return setup


def changed(factor, group=0, part=0):
    result = [[x.clone() for x in parts] for parts in REFERENCE]
    result[group][part] *= factor
    return result


def fail():
    raise TypeError("no such kernel\nmore text")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_fastest_that_agrees(caplog, dtype):
    caplog.set_level("INFO")
    wrong = 1 + 2 * trials.TOLERANCES[dtype]
    candidates = {
        "reference": slow(0.03),
        "fast": slow(0.0),
        "slow": slow(0.06),
        "wrong": slow(0, changed(wrong)),
        "wrong gradient": slow(0, changed(wrong, 1)),
        "nan": slow(0, changed(float("nan"))),
        "noise": slow(0.01, changed(5, 0, 1)),  # where the result should be zero
        "fails": fail,
        "close": slow(0.1, changed(1 + 0.5 * trials.TOLERANCES[dtype])),
    }
    assert ranking("what", candidates, CPU, dtype) == ["fast", "noise", "reference", "slow", "close"]
    (record,) = caplog.records
    line = record.getMessage()
    assert line.startswith("what: fast ") and line.index("; reference ") < line.index("; slow ")
    assert "fails left out: failed: no such kernel" in line and "more text" not in line
    assert "nan left out: its results are not finite" in line and "wrong gradient left out" in line


@pytest.mark.parametrize("reference", [fail, slow(0, changed(float("nan"))), slow(0, changed(float("inf")))])
def test_without_a_reference_there_is_no_choice(caplog, reference):
    caplog.set_level("INFO")
    assert ranking("what", {"reference": reference, "other": slow(0)}, CPU, torch.float32) == []
    assert "what: no choice was made, reference " in caplog.text


def test_products_in_tf32_may_differ_more(monkeypatch):
    candidates = {"reference": slow(0), "other": slow(0, changed(1.005))}
    assert ranking("what", candidates, CPU, torch.float32) == ["reference"]
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert len(ranking("what", candidates, CPU, torch.float32)) == 2


def test_processes_choose_what_rank_0_chooses(monkeypatch):
    assert agreed("alone", lambda: "mine") == "mine"
    store, rank = torch.distributed.HashStore(), [1]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank[0])
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
    refuse = pytest.fail
    assert agreed("loop", lambda: refuse("only rank 0 chooses")) is None
    rank[0] = 0
    assert agreed("loop", lambda: "graph") == "graph"
    rank[0] = 1
    assert agreed("loop", lambda: refuse("only rank 0 chooses")) == "graph"
    assert agreed("another", lambda: refuse("only rank 0 chooses")) is None
    rank[0] = 0
    assert agreed("another", lambda: "") is None, "rank 0 could not choose"
    assert agreed("another", lambda: "fast") == "fast"
    rank[0] = 1
    asked = [agreed("another", lambda: refuse("only rank 0 chooses")) for _ in range(8)]
    assert asked == ["fast", None, "fast", None, None, None, "fast", None], "the 2nd, 4th, 8th … time"

    def gone():
        raise RuntimeError("connection closed")

    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", gone)
    assert agreed("a third", lambda: refuse("only rank 0 chooses")) is None


def test_the_first_candidates_own_rounding():
    """In half precision, over a long window, the first candidate may be the least exact: others are compared with the
    same in fp32."""
    torch.manual_seed(1)
    exact = torch.randn(100)
    results = {
        name: exact + error * torch.randn(100) for name, error in (("first", 0.08), ("better", 0.01), ("wrong", 0.5))
    }
    candidates = {name: lambda x=x: lambda: [[x]] for name, x in results.items()}
    assert ranking("t", candidates, CPU, torch.bfloat16) == ["first"], "the better one is left out, too"
    ranked = ranking("t", candidates, CPU, torch.bfloat16, exact=lambda: lambda: [[exact]])
    assert set(ranked) == {"first", "better"}
