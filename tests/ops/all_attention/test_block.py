"""All-attention layers: the fast path equals the slot-by-slot twin, and the special case of §4.1."""

import math

import pytest
import torch
import torch.nn.functional as F

from fb_fairseq.modules import AllAttention, RelativeTransformer, TransformerOptions
from fb_fairseq.modules.layer import attention_projection
from fb_fairseq.modules.options import PERSISTENT_MEMORY_VARIANTS
from fb_fairseq.ops import all_attention
from fb_fairseq.ops.all_attention import PersistentVectors, persistent_attention, persistent_scores
from fb_fairseq.ops.all_attention_reference import AllAttentionReference
from fb_fairseq.ops.dropout import Dropout, dropout
from tests.modules.options import randomise
from tests.ops.feedback.cases import compare

T, B, C, N, D, H, E = 4, 3, 6, 5, 14, 2, 8
SIZES = dict(decoder_embed_dim=D, decoder_attention_heads=H, decoder_head_dim=E, attention_span=7)


def persistent_attention_reference(q_URE, vectors, mask_URN=None):
    """The plain twin of ``persistent_attention``."""
    scores_URN = persistent_scores(q_URE, vectors)
    weights_URN = dropout(torch.softmax(scores_URN, -1).to(q_URE.dtype), mask_URN)
    out_URE = weights_URN @ vectors.value_UNE * vectors.value_UNE.shape[1] ** 0.5
    return out_URE, scores_URN.logsumexp(-1, keepdim=True)


def stack(**changes):
    """One all-attention layer with N persistent vectors, in double precision, all parameters random."""
    model = AllAttention(TransformerOptions(**{**SIZES, "decoder_layers": 1, "persistent_memory_size": N, **changes}))
    model.double()
    randomise(model)
    if changes.get("adaptive_span"):
        model.layers[0].self_attn.adaptive_span.z.data.uniform_(0, 0.6)
    return model


@pytest.mark.parametrize("variant", PERSISTENT_MEMORY_VARIANTS)
@pytest.mark.parametrize(
    "changes",
    [
        dict(relative_positions="key"),
        dict(relative_positions="key-value", attention_span=3, decoder_normalize_before=True),
        dict(relative_positions="none", adaptive_span=True, adaptive_span_ramp=2),
        dict(relative_positions="key-value", adaptive_span=True, adaptive_span_ramp=3),
    ],
)
@pytest.mark.parametrize("carried", [0, C])
def test_fast_equals_slot_by_slot(variant, changes, carried, empty_is_nan, monkeypatch):
    """Outputs, and the gradient of every parameter and input, in float64; in chunks of two rows."""
    monkeypatch.setitem(all_attention.CHUNK_ENTRIES, "cpu", 2 * N)
    torch.manual_seed(1)
    model = stack(persistent_memory_variant=variant, **changes)
    layer, o = model.layers[0], model.options
    reach = model.reaches()[0]
    x = torch.randn(T, B, D, dtype=torch.double, requires_grad=True)
    carried = torch.randn(carried, B, D, dtype=torch.double)[-reach:]
    seed = torch.randn_like(x)

    def gradients(y):
        model.zero_grad()
        x.grad = None
        (y * seed).sum().backward()
        return {"output": y.detach(), "input": x.grad, **{name: p.grad for name, p in model.named_parameters()}}

    fast = model.run_layer(layer, x, carried, reach, None)
    ours = gradients(fast)
    plain = AllAttentionReference(
        layer=layer.weights(reach),
        projection=attention_projection(layer),
        positions=model.positions.weights(),
        heads=H,
        normalize_before=o.decoder_normalize_before,
    )
    compare(ours, gradients(plain.run(x, carried, reach)), 1e-10)


@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize("p", [0, 0.4])
def test_persistent_attention_equals_its_twin(rows, p, empty_is_nan, monkeypatch):
    monkeypatch.setitem(all_attention.CHUNK_ENTRIES, "cpu", rows * N)
    G, R = 3, 7
    inputs = [torch.randn(shape, dtype=torch.double, requires_grad=True) for shape in ((G, R, E), (G, N, E), (G, N, E))]
    mask = Dropout(torch.rand(G, R, N) >= p, 1 / (1 - p)) if p else None
    seeds = torch.randn(G, R, E, dtype=torch.double), torch.randn(G, R, 1, dtype=torch.double)
    results = []
    for function in (persistent_attention, persistent_attention_reference):
        outputs = function(inputs[0], PersistentVectors(*inputs[1:]), mask)
        gradients = torch.autograd.grad(outputs, inputs, seeds)
        results.append(dict(zip(("output", "lse", "query", "key", "value"), (*outputs, *gradients))))
    compare(*results, 1e-10)
    if rows == 3:
        assert torch.autograd.gradcheck(lambda q, k, v: persistent_attention(q, PersistentVectors(k, v), mask), inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_persistent_attention_in_half_precision(dtype):
    """Close to fp32; gradients of the vectors, sums over all rows, are summed in fp32."""
    q = torch.randn(2, 5000, 16)
    k = torch.randn(2, 33, 16) / 4
    v = torch.randn(2, 33, 16) / 33**0.5
    results = []
    for kind in (torch.float32, dtype):
        inputs = [x.to(kind).requires_grad_() for x in (q, k, v)]
        out, lse = persistent_attention(inputs[0], PersistentVectors(*inputs[1:]))
        assert out.dtype == kind and lse.dtype == torch.float32
        results.append([out, lse, *torch.autograd.grad(out.float().pow(2).sum() + lse.sum(), inputs)])
    for one, other in zip(*results):
        assert (one - other.float()).norm() / one.norm() < (0.005 if dtype == torch.float16 else 0.03)


def test_large_scores_do_not_overflow():
    q = torch.randn(1, 4, E) * 300
    k = torch.randn(1, N, E) * 30
    v = torch.randn(1, N, E)
    out, lse = persistent_attention(q, PersistentVectors(k, v))
    expected, expected_lse = persistent_attention_reference(q, PersistentVectors(k, v))
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(lse, expected_lse)
    assert lse.max() > 1000


def test_a_softmax_feed_forward_sublayer():
    """§4.1, Eq. 9: with one head and no context, ``W_o U softmax(V W_q x)``."""
    model = stack(decoder_attention_heads=1, decoder_head_dim=D, decoder_normalize_before=True)
    layer = model.layers[0]
    x = torch.randn(1, B, D, dtype=torch.double)  # the first step of a stream
    V = layer.persistent_memory.key[0]
    U = layer.persistent_memory.value[0].t() * math.sqrt(N)
    query = F.linear(layer.self_attn_layer_norm(x), layer.self_attn.q_proj.weight)
    sublayer = F.linear(torch.softmax(query @ V.t(), -1) @ U.t(), layer.self_attn.out_proj.weight)
    torch.testing.assert_close(model.run_layer(layer, x, x[:0], 7, None), x + sublayer)


def test_without_vectors_it_is_a_transformer_without_feed_forward():
    model = stack(persistent_memory_size=0, decoder_normalize_before=True, decoder_layers=2)
    options = TransformerOptions(**SIZES, decoder_layers=2, decoder_ffn_embed_dim=3, decoder_normalize_before=True)
    baseline = RelativeTransformer(options).double()
    missing, unexpected = baseline.load_state_dict(model.state_dict(), strict=False)
    assert not unexpected and all(name.endswith("bias") or ".fc" in name or ".final" in name for name in missing)
    for name in missing:
        baseline.get_parameter(name).data.zero_()
    x = torch.randn(9, B, D, dtype=torch.double)
    torch.testing.assert_close(model(x)[0], baseline(x)[0])


def test_initialisation():
    """§5.1: k' ~ N(0, 1/Dh), v' ~ N(0, 1/N), so that the vectors themselves have unit variance; no biases."""
    options = dict(decoder_layers=1, decoder_embed_dim=128, decoder_attention_heads=4, persistent_memory_size=512)
    for variant, width in (("all-attn", 32), ("single-head", 128), ("ff-attn", 128)):
        memory = (
            AllAttention(TransformerOptions(persistent_memory_variant=variant, **options)).layers[0].persistent_memory
        )
        assert memory.key.shape == memory.value.shape == (128 // width, 512, width)
        assert memory.key.std().item() * width**0.5 == pytest.approx(1, abs=0.02)
        assert memory.value.std().item() * 512**0.5 == pytest.approx(1, abs=0.02)
    attention = AllAttention(TransformerOptions(**options)).layers[0].self_attn
    assert attention.q_proj.bias is None and attention.out_proj.bias is None
    bound = 128**-0.5
    assert 0.98 * bound < attention.k_proj.weight.abs().max() <= bound
    assert attention.k_proj.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
