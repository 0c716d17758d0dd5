"""What users put in the place of linear maps takes part: adapters, parametrisations, quantised layers, hooks."""

import copy

import pytest
import torch
import torch.nn as nn
from torch.nn.utils import parametrizations
from torch.testing._internal.two_tensor import TwoTensor

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer
from fb_fairseq.modules.affine import is_bare_linear
from fb_fairseq.modules.encoder import EncoderOptions, TransformerEncoder
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.log import log_once
from tests.modules.options import random_stack

STACKS = [FeedbackTransformer, RelativeTransformer, AllAttention]


class Adapter(nn.Module):
    """As peft's LoRA: ``base(x) + B A x``."""

    def __init__(self, base):
        super().__init__()
        self.base_layer = base
        self.a = nn.Linear(base.in_features, 2, False)
        self.b = nn.Linear(2, base.out_features, False)

    def forward(self, x):
        return self.base_layer(x) + self.b(self.a(x))

    def merge(self):
        merged = copy.deepcopy(self.base_layer)
        merged.weight.data += self.b.weight @ self.a.weight
        return merged


def build(stack, **changes):
    return random_stack(stack, 1, adaptive_span=False, **changes)


def linear_maps(model):
    children = [(parent, *child) for parent in model.modules() for child in parent.named_children()]
    return [(parent, name) for parent, name, part in children if type(part) is nn.Linear]


def merged_copy(model):
    """The same model with the adapters' products added to the matrices."""
    merged = copy.deepcopy(model)
    for parent in list(merged.modules()):
        for name, part in list(parent.named_children()):
            if isinstance(part, Adapter):
                setattr(parent, name, part.merge())
    return merged


def adapted(model):
    """The model with adapters everywhere, and its merged copy."""
    for parent, name in linear_maps(model):
        setattr(parent, name, Adapter(getattr(parent, name)))
    return model, merged_copy(model)


@pytest.mark.parametrize("stack", STACKS)
def test_adapters(stack):
    """Training: outputs and the adapters' gradients. Decoding: outputs, also after the adapters have changed."""
    model, merged = adapted(build(stack, memory_projections="shared"))
    x_TBD = torch.randn(7, 2, model.options.decoder_embed_dim)
    y_TBD = model.run_block(x_TBD)[0]
    expected_TBD = merged.run_block(x_TBD)[0]
    torch.testing.assert_close(y_TBD, expected_TBD, atol=1e-4, rtol=1e-4)
    y_TBD.square().sum().backward()
    expected_TBD.square().sum().backward()
    adapters = {name: part for name, part in model.named_modules() if isinstance(part, Adapter)}
    assert len(adapters) >= 4
    for name, part in adapters.items():
        d_weight = merged.get_submodule(name).weight.grad  # of W + B A
        torch.testing.assert_close(part.b.weight.grad, d_weight @ part.a.weight.t(), atol=2e-3, rtol=2e-3)
        torch.testing.assert_close(part.a.weight.grad, part.b.weight.t() @ d_weight, atol=2e-3, rtol=2e-3)
    model.eval()
    with torch.no_grad():
        for scale in (1, 0.5):
            for part in adapters.values():
                part.b.weight.mul_(scale)
            ring = model.new_ring()
            steps = torch.stack([model.run_step(x_BD, ring) for x_BD in x_TBD])
            torch.testing.assert_close(steps, merged_copy(model).run_block(x_TBD)[0], atol=1e-4, rtol=1e-4)


def test_adapters_that_are_switched_off(monkeypatch):
    """No parameter changes; the next sequence notices it."""
    model = build(FeedbackTransformer, step_loop="cpp").eval()
    x_TBD = torch.randn(5, 2, model.options.decoder_embed_dim)
    plain = copy.deepcopy(model)
    model, merged = adapted(model)
    on = Adapter.forward
    with torch.no_grad():
        for forward, expected in ((on, merged), (lambda self, x: self.base_layer(x), plain), (on, merged)):
            monkeypatch.setattr(Adapter, "forward", forward)
            ring = model.new_ring()
            steps = torch.stack([model.run_step(x_BD, ring) for x_BD in x_TBD])
            torch.testing.assert_close(steps, expected.run_block(x_TBD)[0], atol=1e-4, rtol=1e-4)


@pytest.fixture
def calls(monkeypatch):
    """Grows with each block that the reference runs."""
    log_once.cache_clear()
    ran = []
    counted = lambda *arguments, **options: ran.append(1) or feedback_block(*arguments, **options)
    monkeypatch.setattr("fb_fairseq.ops.feedback.loops.feedback_block", counted)
    return ran


def test_adapters_run_in_the_reference_loop(calls, caplog):
    """Which alone calls modules, as the log says once. Merged ones run in any loop."""
    model, merged = adapted(build(FeedbackTransformer))
    x_TBD = torch.randn(4, 2, model.options.decoder_embed_dim)
    for _ in range(2):
        model.run_block(x_TBD)
    assert len(calls) == 2 and caplog.text.count("run in the reference loop, which is slow") == 1
    merged.run_block(x_TBD)
    assert len(calls) == 2


class RoundsItsInput(nn.Linear):
    """As torchao's int8 layers: it looks for the largest entry, and so cannot take no rows at all, of which the memory
    has none at the beginning of a text."""

    def forward(self, x):
        step = x.abs().max() / 127
        return super().forward((x / step).round() * step) if step else super().forward(x)


def round_inputs(model):
    for parent, name in linear_maps(model):
        getattr(parent, name).__class__ = RoundsItsInput
    return model


def torchs_own(model):
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


@pytest.mark.parametrize("quantise", [torchs_own, round_inputs])
@pytest.mark.parametrize("stack", STACKS)
def test_quantised_layers(stack, quantise):
    """Block and steps call them, and agree."""
    model = build(stack).eval()
    x_TBD = torch.randn(6, 2, model.options.decoder_embed_dim)
    with torch.no_grad():
        exact = model.run_block(x_TBD)[0]
        model = quantise(model)
        y_TBD = model.run_block(x_TBD)[0]
        ring = model.new_ring()
        steps = torch.stack([model.run_step(x_BD, ring) for x_BD in x_TBD])
    assert 1e-6 < (y_TBD - exact).norm() / exact.norm() < 0.1
    assert (steps - y_TBD).norm() / exact.norm() < 0.1


class T5LayerNorm(nn.Tanh):
    """Without ``bias`` and ``eps``, as transformers' norm of this name."""


class ConditionalLayerNorm(nn.LayerNorm):
    """With a ``forward`` of its own, as for adapters."""

    def forward(self, x):
        return 2 * super().forward(x)


def with_another_forward(layer_norm):
    layer_norm.forward = torch.tanh
    return layer_norm


NORMS = (
    T5LayerNorm(),
    nn.LayerNorm(14, bias=False),
    nn.LayerNorm(14, eps=0.1),
    ConditionalLayerNorm(14),
    with_another_forward(nn.LayerNorm(14)),
)


@pytest.mark.parametrize(
    "owner,name,part",
    [("layers.0", "final_layer_norm", norm) for norm in NORMS]
    + [("memory.k_proj", "bias", None), ("memory.v_proj", "bias", None)],
)
def test_other_norms_and_biases(owner, name, part):
    """They take part, in block and steps. A bias of all keys has no effect."""
    model = build(FeedbackTransformer, decoder_embed_dim=14, memory_projections="shared").eval()
    x_TBD = torch.randn(6, 2, 14)
    with torch.no_grad():
        before_TBD = model.run_block(x_TBD)[0]
        if getattr(part, "bias", None) is not None:  # it differs in its ``forward`` or epsilon alone
            part.load_state_dict(model.get_submodule(owner).final_layer_norm.state_dict())
        setattr(model.get_submodule(owner), name, part)
        y_TBD = model.run_block(x_TBD)[0]
        ring = model.new_ring()
        steps = torch.stack([model.run_step(x_BD, ring) for x_BD in x_TBD])
    assert ((y_TBD - before_TBD).norm() > 1e-3) == (owner != "memory.k_proj")
    torch.testing.assert_close(steps, y_TBD, atol=1e-4, rtol=1e-4)


def test_quantised_parameters_are_no_plain_weights():
    """As torchao's: a tensor that stands for others."""
    layer = nn.Linear(4, 3)
    assert is_bare_linear(layer)
    layer.weight = nn.Parameter(TwoTensor(torch.randn(3, 4), torch.randn(3, 4)))
    assert not is_bare_linear(layer)


def test_parametrisations(calls):
    """Their weight is read as it is now, by any loop."""
    model = build(FeedbackTransformer)
    for layer in model.layers:
        parametrizations.weight_norm(layer.fc1)
    x_TBD = torch.randn(4, 2, model.options.decoder_embed_dim)
    before = model.run_block(x_TBD)[0]
    model.layers[0].fc1.parametrizations.weight.original0.data.mul_(2)
    after = model.run_block(x_TBD)[0]
    assert not torch.allclose(before, after) and not calls
    after.sum().backward()
    assert model.layers[0].fc1.parametrizations.weight.original0.grad.abs().sum() > 0


@pytest.mark.parametrize("stack", STACKS)
def test_hooks(stack, calls, caplog):
    """Of linear maps and norms they run, and may change the result; of layers they do not, which is logged."""
    model = build(stack).eval()
    x_TBD = torch.randn(4, 2, model.options.decoder_embed_dim)
    before, seen = model.run_block(x_TBD)[0], []
    maps = {part for part in model.modules() if isinstance(part, (nn.Linear, nn.LayerNorm))}
    handles = [part.register_forward_hook(lambda part, given, out: seen.append(part)) for part in maps]
    torch.testing.assert_close(model.run_block(x_TBD)[0], before, atol=1e-4, rtol=1e-4)
    assert set(seen) == maps and bool(calls) == (stack is FeedbackTransformer)
    for handle in handles:
        handle.remove()
    handle = model.layers[0].self_attn.out_proj.register_forward_hook(lambda part, given, out: 2 * out)
    assert not torch.allclose(model.run_block(x_TBD)[0], before)
    handle.remove()
    torch.testing.assert_close(model.run_block(x_TBD)[0], before, atol=1e-4, rtol=1e-4)
    model.layers[0].register_forward_hook(lambda *_: seen.append("layer"))
    model.run_block(x_TBD)
    assert caplog.text.count("its hooks do not run") == 1 and "layer" not in seen


def test_a_norm_of_another_class_is_called():
    """By the reference loop."""
    model = build(FeedbackTransformer, decoder_normalize_before=True).eval()
    x_TBD = torch.randn(4, 2, model.options.decoder_embed_dim)
    before = model.run_block(x_TBD)[0]
    for layer in model.layers:
        layer.final_layer_norm = nn.RMSNorm(model.options.decoder_embed_dim)
    assert not torch.allclose(model.run_block(x_TBD)[0], before)


def test_an_encoder_calls_its_adapters():
    torch.manual_seed(1)
    sizes = dict(encoder_embed_dim=8, encoder_ffn_embed_dim=12, encoder_attention_heads=2, encoder_layers=2)
    encoder = TransformerEncoder(EncoderOptions(**sizes), nn.Embedding(9, 8)).eval()
    encoder, merged = adapted(encoder)
    tokens = torch.randint(9, (2, 5))
    kept = torch.ones(2, 5, dtype=torch.bool)
    torch.testing.assert_close(encoder(tokens, kept), merged(tokens, kept), atol=1e-5, rtol=1e-5)
