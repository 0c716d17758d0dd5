"""The Triton kernels on a CPU, in Triton's interpreter (``test_triton_attention.py`` runs this file with it)."""

import pytest
import torch

from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.ops import fallbacks, triton_attention
from fb_fairseq.ops.attention import Positions, span_terms, step_attention
from fb_fairseq.ops.feedback.fast.loop import feedback_block_fast
from fb_fairseq.ops.feedback.graph import stepper, steps
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.layers import Dropout
from fb_fairseq.ops.triton_attention import Slots, attend, attend_backward
from tests.modules.options import random_options, randomise
from tests.ops.feedback.cases import Case, compare
from tests.ops.recorded_graph import change_limits


class Step:
    """Random queries over C of S slots; the seed selects positions, spans, episodes and dropout."""

    def __init__(self, seed, B=2, H=3, C=7, S=10, E=5, dtype=torch.double):
        torch.manual_seed(seed)
        self.B, self.H, self.S, G = B, H, S, B * H
        random = lambda *shape: torch.randn(*shape, dtype=dtype)  # noqa: E731
        self.q, self.d_out = random(G, E), random(G, E)
        self.keys, self.values = (random(G, C + 3, E)[:, 2 : 2 + C] for _ in range(2))
        self.key_positions = random(S, E) if seed % 2 else None
        self.value_positions = random(S, E) if seed % 3 == 1 else None
        self.mask_HS = (torch.rand(H, S, dtype=dtype) - 0.3).clamp(0, 1) if seed % 4 > 1 else None
        if self.mask_HS is not None:
            self.mask_HS[0] = 0  # a head that attends to nothing
        self.reach_B = torch.tensor([2, 100][:B]) if seed % 5 == 0 else None
        self.dropout = Dropout(torch.rand(G, S) > 0.3, 1 / 0.7) if seed % 3 == 0 else None

    def slots(self, keys=None, values=None, **more):
        log_mask = None if self.mask_HS is None else span_terms(self.mask_HS.flip(1))[0]
        flip = lambda table: None if table is None else table.flip(0)  # noqa: E731
        return Slots(
            self.keys if keys is None else keys,
            self.values if values is None else values,
            self.H,
            flip(self.key_positions),
            flip(self.value_positions),
            log_mask,
            reach_B=self.reach_B,
            **more,
        )

    def plain(self, q, keys, values, key_positions, value_positions, d_out):
        C = keys.shape[1]
        by_slot = lambda x: x.unflatten(0, (self.B, self.H)).permute(2, 0, 1, 3)  # noqa: E731
        far = None if self.reach_B is None else torch.arange(C, 0, -1) > self.reach_B[:, None]
        return step_attention(
            q.unflatten(0, (self.B, self.H)),
            by_slot(keys),
            by_slot(values),
            Positions(key_positions, value_positions).of_window(C),
            self.dropout and Dropout(self.dropout.keep.unflatten(0, (self.B, self.H)), self.dropout.scale),
            None if self.mask_HS is None else self.mask_HS[:, :C].flip(1),
            far_BC=far,
        ).flatten(0, 1)


@pytest.mark.parametrize("C", [1, 7, 70])
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 6, 10])
def test_step_and_its_gradients(seed, C):
    step = Step(seed, C=C, S=max(10, C + seed % 2))
    G, E = step.q.shape
    p, out = torch.full((G, step.S), float("nan"), dtype=torch.double), torch.empty_like(step.q)
    attend(step.q, step.slots(), step.dropout, p, out)
    q = step.q.requires_grad_()
    expected = step.plain(q, step.keys, step.values, step.key_positions, step.value_positions, step.d_out)
    torch.testing.assert_close(out, expected.detach(), atol=1e-12, rtol=1e-12)
    (d_q_expected,) = torch.autograd.grad(expected, q, step.d_out)
    d_score, d_q = torch.full_like(p, float("nan")), torch.full_like(step.q, float("nan"))
    attend_backward(step.d_out, out, step.slots(), step.dropout, p, d_score, d_q)
    torch.testing.assert_close(d_q, d_q_expected, atol=1e-12, rtol=1e-12)
    assert d_score[:, step.S - C :].isfinite().all() and d_score[:, : step.S - C].isnan().all()


@pytest.mark.parametrize("seen", [0, 1, 7, 13, 700])
def test_ring_of_slots(seen):
    """Step t lies in slot t mod C; slots that are not filled yet may hold anything."""
    step = Step(7, C=7, S=10)
    G, E = step.q.shape
    filled = min(seen, 7)
    ring = [torch.full((G, 7, E), float("nan"), dtype=torch.double) for _ in range(2)]
    for distance in range(1, filled + 1):
        for ring_slots, slots in zip(ring, (step.keys, step.values)):
            ring_slots[:, (seen - distance) % 7] = slots[:, -distance]
    p, out = torch.empty(G, step.S, dtype=torch.double), torch.empty_like(step.q)
    attend(step.q, step.slots(*ring, seen_1=torch.tensor([seen])), None, p, out)
    newest = slice(7 - filled, 7)
    expected = step.plain(
        step.q, step.keys[:, newest], step.values[:, newest], step.key_positions, step.value_positions, step.d_out
    )
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=1e-12)


def test_padding():
    step = Step(8, C=6, S=6)
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    p, out = torch.empty(6, 6, dtype=torch.double), torch.empty_like(step.q)
    step.mask_HS = step.reach_B = step.dropout = None
    attend(step.q, step.slots(padding_BC=padding), None, p, out)
    assert p.view(2, 3, 6)[1, :, 4:].eq(0).all()
    whole = step.plain(step.q, step.keys, step.values, None, None, None).view(2, 3, -1)
    cut = step.plain(step.q, step.keys[:, :4], step.values[:, :4], None, None, None).view(2, 3, -1)
    torch.testing.assert_close(out.view(2, 3, -1), torch.stack([whole[0], cut[1]]), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 1e-5), (torch.float16, 1e-2)])
def test_lower_precision(dtype, tolerance):
    """Attention weights are at least fp32."""
    step = Step(1, C=70, S=80)
    exact = step.plain(step.q, step.keys, step.values, step.key_positions, step.value_positions, None)
    for name in ("q", "keys", "values", "key_positions", "value_positions"):
        setattr(step, name, getattr(step, name).to(dtype))
    p, out = torch.empty(len(step.q), step.S), torch.empty_like(step.q)
    attend(step.q, step.slots(), None, p, out)
    torch.testing.assert_close(out.double(), exact, atol=tolerance, rtol=tolerance)


def counted(monkeypatch):
    """A list that grows with each call of a kernel."""
    assert fallbacks.problem_of_kernels("cpu") is None  # calls them, too, the first time
    ran = []
    for name in ("attend", "attend_backward"):
        call = getattr(triton_attention, name)
        monkeypatch.setattr(triton_attention, name, lambda *args, call=call: (ran.append(1), call(*args)))
    return ran


@torch.no_grad()
def test_decoding_with_the_kernel(monkeypatch):
    """Steps on a ring of slots, with spans and positions."""
    monkeypatch.setattr(fallbacks, "KERNEL_DEVICES", ("cpu",))
    monkeypatch.setattr(fallbacks, "GRAPH_DEVICES", ("cpu",))
    ran = counted(monkeypatch)
    change_limits(monkeypatch, stepper, capture_at=3)

    class RepeatedStep:
        """In place of a graph: calls the captured step itself."""

        def __init__(self, function):
            self.function = function

        def replay(self):
            self.result = self.function()

    monkeypatch.setattr(steps, "CudaGraph", RepeatedStep)
    options = random_options(
        4,
        decoder_layers=2,
        attention_span=6,
        adaptive_span=True,
        relative_positions="key-value",
        step_loop="graph",
        step_loop_kernel="triton",
    )
    model = FeedbackTransformer(options).double().eval()
    randomise(model)
    for layer in model.layers:
        layer.self_attn.adaptive_span.z.data.uniform_(0, 1)
    x, memory = torch.randn(10, 2, options.decoder_embed_dim, dtype=torch.double), model.new_ring("keys-values")
    y = torch.stack([model.run_step(x_BD, memory) for x_BD in x])
    assert len(ran) == 2 * (1 + 10 - 3), "two layers: before the capture, and in each replay"
    torch.testing.assert_close(y, model(x)[0], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("seed", [0, 3])
def test_fast_loop_with_the_kernels(seed, monkeypatch):
    """A whole block and all gradients."""
    monkeypatch.setattr(fallbacks, "KERNEL_DEVICES", ("cpu",))
    ran = counted(monkeypatch)
    case = Case(seed, steps=3, cross=seed == 0, resets=seed == 3)
    for recompute in [False, True][: 1 + (seed == 5)]:
        plain = case.run(feedback_block, recompute)

        def loop(x, memory, weights, options, *others):
            return feedback_block_fast(x, memory, weights, options._replace(kernel="triton"), *others)

        compare(case.run(loop, recompute), plain, 1e-10)
    assert len(ran) >= 2 * 2 * len(case.model.layers), "the kernels ran"


def test_kernels_that_fail_are_not_used(monkeypatch, caplog):
    """They are tried on a small step first; torch's products run instead, with one warning."""
    monkeypatch.setattr(fallbacks, "KERNEL_DEVICES", ("cpu",))
    attend = triton_attention.attend

    def fail(*arguments):
        raise TypeError("no compiler\nmore")

    def wrong(q_GE, slots, mask, p_GS, out_GE):
        attend(q_GE, slots, mask, p_GS, out_GE)
        out_GE.mul_(1.1)

    for broken, text in (
        (fail, "a kernel failed (TypeError: no compiler)"),
        (wrong, "a kernel's result is wrong by 0."),
    ):
        fallbacks.log_once.cache_clear()
        fallbacks.problem_of_kernels.cache_clear()
        caplog.clear()
        with monkeypatch.context() as patch:
            patch.setattr(triton_attention, "attend", broken)
            assert not fallbacks.have_kernels(torch.device("cpu"))
            case = Case(3, steps=3)
            loop = lambda x, m, w, options, *others: feedback_block_fast(  # noqa: E731
                x, m, w, options._replace(kernel="triton"), *others
            )
            compare(case.run(loop), case.run(feedback_block), 1e-10)
        assert caplog.text.count(text) == 1 and "torch's products are used" in caplog.text
    fallbacks.problem_of_kernels.cache_clear()
    assert fallbacks.have_kernels(torch.device("cpu"))
