"""Block attention against attention one step at a time, which is checked against the formula."""

import math

import pytest
import torch

from fb_fairseq.ops import attention
from fb_fairseq.ops.attention import Positions, block_attention, step_attention
from fb_fairseq.ops.dropout import Dropout
from fb_fairseq.ops.products import add_product
from fb_fairseq.ops.windows import by_distance, by_slot

B, T, S, H, E = 2, 5, 4, 3, 6


def tensors(*shapes):
    return [torch.randn(shape, dtype=torch.double, requires_grad=True) for shape in shapes]


def by_hand(q_BHE, k_CBHE, v_CBHE, positions, keep_BHC=None):
    """The paper's formula. ``keep_BHC``: the weights that dropout with probability 0.5 keeps."""
    rows_C = torch.arange(len(k_CBHE)).flip(0)  # of the embeddings: each slot's distance - 1
    if positions.key_SE is not None:
        k_CBHE = k_CBHE + positions.key_SE[rows_C][:, None, None]
    if positions.value_SE is not None:
        v_CBHE = v_CBHE + positions.value_SE[rows_C][:, None, None]
    exp_CBH = ((q_BHE * k_CBHE).sum(-1) / math.sqrt(E)).exp()
    weights_CBH = exp_CBH / exp_CBH.sum(0)
    if keep_BHC is not None:
        weights_CBH = weights_CBH * keep_BHC.movedim(-1, 0) / 0.5
    return (weights_CBH[..., None] * v_CBHE).sum(0)


@pytest.mark.parametrize("kind", ["none", "key", "key-value"])
@pytest.mark.parametrize("slots", [0, 1, 3, S])
def test_step_is_the_formula(kind, slots, empty_is_nan):
    q, k, v, u, w = tensors((B, H, E), (slots, B, H, E), (slots, B, H, E), (S, E), (S, E))
    positions = Positions(u if "key" in kind else None, w if "value" in kind else None)
    keep_BHS = torch.rand(B, H, S) > 0.5
    for mask in (None, Dropout(keep_BHS, 2.0)):
        keep = None if mask is None else keep_BHS[..., S - slots :]
        torch.testing.assert_close(
            step_attention(q, k, v, positions.of_window(slots), mask_BHS=mask), by_hand(q, k, v, positions, keep)
        )


@pytest.mark.parametrize("kind", ["none", "key", "key-value"])
@pytest.mark.parametrize("carried", [0, 2, S])
@pytest.mark.parametrize("dropped", [False, True])
def test_block_equals_steps(kind, carried, dropped, empty_is_nan):
    C = carried + T - 1
    q, k, v, u, w = leaves = tensors((T, B, H, E), (C, B, H, E), (C, B, H, E), (S, E), (S, E))
    positions = Positions(u if "key" in kind else None, w if "value" in kind else None)
    mask = Dropout(torch.rand(B, H, T, S) > 0.5, 2.0) if dropped else None
    block = block_attention(q, k, v, S, positions, mask_BHTS=mask)
    steps = []
    for t in range(T):
        window = slice(max(0, carried + t - S), carried + t)
        at_t = mask and Dropout(mask.keep[:, :, t], mask.scale)
        in_window = positions.of_window(len(k[window]))
        steps.append(step_attention(q[t], k[window], v[window], in_window, mask_BHS=at_t))
    steps = torch.stack(steps)
    torch.testing.assert_close(block, steps)
    seed = torch.randn_like(block)
    gradients = [torch.autograd.grad(y, leaves, seed, materialize_grads=True) for y in (block, steps)]
    for name, one, other in zip("qkvuw", *gradients):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"gradient of {name}: {text}")
        assert one.isfinite().all()


def test_by_slot_places_each_distance():
    x_TS = torch.arange(1.0, 1 + T * S).view(T, S)
    placed = by_slot(x_TS, S + T - 1)
    for t in range(T):
        assert placed[t, t : t + S].tolist() == x_TS[t].tolist()
        assert placed[t, :t].sum() == 0 and placed[t, t + S :].sum() == 0
    assert by_distance(placed, S).equal(x_TS)
    assert by_distance(by_slot(x_TS, 6), S)[T - 1].equal(x_TS[T - 1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_softmax_is_fp32(dtype, monkeypatch):
    """The logarithm of the sum of 300 equal weights is exact to fp32; the result has the type of the values."""
    types, softmax = [], torch.softmax
    monkeypatch.setattr(torch, "softmax", lambda x, *args: types.append(x.dtype) or softmax(x, *args))
    q_BHE = torch.ones(1, 1, E, dtype=dtype)
    k_CBHE = torch.zeros(300, 1, 1, E, dtype=dtype)
    step = step_attention(q_BHE, k_CBHE, k_CBHE, Positions(), return_lse=True)
    block = block_attention(q_BHE[None], k_CBHE, k_CBHE, 300, Positions(), return_lse=True)
    assert types == [torch.float32] * 2
    for out, lse in (step, block):
        assert out.dtype == dtype
        torch.testing.assert_close(lse, torch.full_like(lse, math.log(300), dtype=torch.float32))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_scaled_products_are_added(batch, dtype):
    """To a total in fp32, as gradients in half precision are."""
    a, b = torch.ones(*batch, 2, 4, dtype=dtype), torch.ones(*batch, 4, 3, dtype=dtype)
    total = torch.ones(*batch, 2, 3)
    add_product(total, a, b, 0.5)
    assert total.eq(3).all()


@pytest.mark.parametrize("carried", [0, 1, 20])
@pytest.mark.parametrize("span", [1, 3])
def test_long_blocks_are_computed_in_pieces(carried, span, monkeypatch):
    """The same with dropout, adaptive spans and episodes, and the same gradients."""
    steps, C = 11, carried + 10
    leaves = tensors((steps, B, H, E), (C, B, H, E), (C, B, H, E), (span, E), (span, E), (H, span))
    mask = Dropout(torch.rand(B, H, steps, span) > 0.5, 2.0)
    age_TB = torch.randint(0, 5, (steps, B))
    results, computed = [], []
    weights = attention.block_attention_weights
    monkeypatch.setattr(
        attention, "block_attention_weights", lambda *args, **given: computed.append(1) or weights(*args, **given)
    )
    for least in (128, 2):
        computed.clear()
        monkeypatch.setattr(attention, "LEAST_STEPS", least)
        q, k, v, u, w, span_mask = leaves
        given = q, k, v, span, Positions(u, w)
        limits = dict(mask_BHTS=mask, span_mask_HS=span_mask.sigmoid(), age_TB=age_TB)
        out, lse = block_attention(*given, **limits, return_lse=True)
        assert len(computed) == -(-steps // max(span, least))
        torch.testing.assert_close(block_attention(*given, **limits), out)
        loss = (out * torch.linspace(-1, 1, E)).sum() + lse.clamp(min=-100).sum()
        results.append([out, lse, *torch.autograd.grad(loss, leaves)])
    for whole, pieces in zip(*results):
        torch.testing.assert_close(pieces, whole)
