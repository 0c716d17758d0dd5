"""What agrees with torch's operations, and what does not."""

import pytest
import torch

from fb_fairseq.ops.agreement import TOLERANCES, Undecided, disagreement
from fb_fairseq.ops.captures import Captures, Comparison

RESULT = [[torch.linspace(1, 2, 10), torch.full((3,), 1e-7)], [torch.ones(4)]]


def changed(factor, group=0, part=0):
    result = [[x.clone() for x in parts] for parts in RESULT]
    result[group][part] *= factor
    return lambda: result


def fail():
    raise TypeError("no such kernel\nmore text")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_agreement(dtype):
    wrong = 1 + max(2 * TOLERANCES[dtype], 1e-6)  # the results here are fp32
    plain = changed(1)
    assert disagreement(plain, plain, dtype) is None
    if dtype != torch.float64:
        assert disagreement(changed(5, 0, 1), plain, dtype) is None, "noise, where the result should be zero"
    assert "differ by" in disagreement(changed(wrong), plain, dtype)
    assert "differ by" in disagreement(changed(wrong, 1), plain, dtype)
    assert disagreement(changed(float("nan")), plain, dtype) == "its results are not finite"
    assert disagreement(fail, plain, dtype) == "failed: no such kernel"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nothing_to_compare_with(value):
    with pytest.raises(Undecided):
        disagreement(changed(1), changed(value), torch.float32)


def out_of_memory():
    raise torch.cuda.OutOfMemoryError


def test_short_memory_is_no_verdict():
    """Not where torch's operations need more of it either."""
    assert Captures().agrees(("loop",), Comparison(changed(1), out_of_memory, torch.float32, None)) is None


def test_other_shapes():
    """Of a tensor, or fewer of them."""
    for found in ([[x[:1] for x in group] for group in RESULT], RESULT[:1], [group[:1] for group in RESULT]):
        assert disagreement(lambda r=found: r, changed(1), torch.float32) == "its results have other shapes"


def test_products_in_tf32_may_differ_more(monkeypatch):
    assert disagreement(changed(1.005), changed(1), torch.float32)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert disagreement(changed(1.005), changed(1), torch.float32) is None


def test_torchs_own_rounding():
    """In half precision torch's operations may be the less exact ones: both are compared with fp32."""
    torch.manual_seed(1)
    exact = torch.randn(100)
    plain, better, wrong = (lambda e=e: [[exact + e * torch.randn(100)]] for e in (0.08, 0.01, 0.5))
    assert disagreement(better, plain, torch.bfloat16) is not None
    assert disagreement(better, plain, torch.bfloat16, lambda: [[exact]]) is None
    assert disagreement(wrong, plain, torch.bfloat16, lambda: [[exact]]) is not None
    assert disagreement(plain, plain, torch.float64, out_of_memory) is not None, "the two are compared directly"
