"""The stacks: the same result however a stream is cut into blocks; causality; spans; stacks that must agree."""

import dataclasses
import random

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, StreamState, TransformerOptions
from fb_fairseq.modules.options import PERSISTENT_MEMORY_VARIANTS, EncoderOptions
from fb_fairseq.papers.benchmark.memory import saved_bytes
from tests.modules.options import random_cuts, random_options, randomise
from tests.ops.feedback.cases import compare

STACKS = [FeedbackTransformer, RelativeTransformer, AllAttention]
B, STEPS = 3, 17
THREE_HEADS = dict(decoder_attention_heads=3, decoder_head_dim=8)
TWO = dict(decoder_layers=2, adaptive_span=False)
WEIGHTED = dict(memory_composition="weighted", memory_projections="shared")
PREVIOUS = dict(decoder_layers=3, memory_composition="previous", memory_projections="per-layer")


def build(stack, options):
    """A stack with random parameters; of All-attention also with a random persistent memory, drawn from the options."""
    if stack is AllAttention:
        draw = random.Random(options.decoder_embed_dim + options.attention_span + options.decoder_layers)
        size, heads = draw.choice([0, 1, 9]), options.decoder_attention_heads
        variants = [v for v in PERSISTENT_MEMORY_VARIANTS if v != "head-split" or heads % 2 == 0]
        variant = draw.choice(variants if size else ["all-attn"])
        options = dataclasses.replace(options, persistent_memory_size=size, persistent_memory_variant=variant)
    model = stack(options)
    randomise(model)
    return model


def run(model, x_TBD, cuts, state=None):
    """The features of a stream that is cut into blocks of these lengths, and the state after the last one."""
    outputs = []
    for block in x_TBD.split(cuts):
        y, state = model(block, state)
        outputs.append(y)
    return torch.cat(outputs), state


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("seed", range(12))
def test_full_equals_blocks_equals_steps(stack, seed, empty_is_nan):
    """And so no step sees later ones. Each stream is as it is alone."""
    torch.manual_seed(seed)
    options = random_options(seed)
    model = build(stack, options)
    x = torch.randn(STEPS, B, options.decoder_embed_dim)
    full, state = run(model, x, [STEPS])
    for cuts in (random_cuts(seed, STEPS), [1] * STEPS):
        y, other = run(model, x, cuts)
        torch.testing.assert_close(y, full, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(other.memory_KCBD, state.memory_KCBD, atol=1e-5, rtol=1e-5)
        assert other.memory_KCBD.shape[1] == min(STEPS, options.attention_span)
    ring = model.eval().new_ring("keys-values")
    y = torch.stack([model.run_step(x_BD, ring) for x_BD in x])
    torch.testing.assert_close(y, full, atol=1e-5, rtol=1e-5)
    y, _ = run(model, x[:, 1:2], [STEPS])
    torch.testing.assert_close(y, full[:, 1:2], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("span", [1, 2, 5])
@pytest.mark.parametrize("stack,reach", [(FeedbackTransformer, 1), (RelativeTransformer, 2), (AllAttention, 2)])
def test_span_is_exact(span, stack, reach):
    """A step reaches exactly ``span`` steps back: once if the memory is the embedding, else once per layer."""
    options = random_options(3, **TWO, attention_span=span, memory_composition="layer:0", activation_fn="gelu")
    model = build(stack, options).double()
    x = torch.randn(STEPS, B, options.decoder_embed_dim, dtype=torch.double, requires_grad=True)
    y, _ = model(x)
    (gradient,) = torch.autograd.grad(y[-1].pow(2).sum(), x)
    reached = [t for t in range(STEPS) if gradient[t].abs().max() > 0]
    assert reached == list(range(STEPS - 1 - reach * span, STEPS))


@pytest.mark.parametrize("carried", [True, False])
@pytest.mark.parametrize("stack", STACKS)
def test_blocks_of_one_step_have_a_gradient_for_every_parameter(stack, carried):
    """DistributedDataParallel waits for all gradients, also in the short last block of an epoch."""
    options = random_options(3, **TWO, memory_composition="weighted", relative_positions="key-value")
    model = build(stack, options)
    state = model(torch.randn(5, B, options.decoder_embed_dim))[1] if carried else None
    model(torch.randn(1, B, options.decoder_embed_dim), state)[0].sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("stack", STACKS)
def test_bf16_autocast(stack):
    """Close to fp32 in outputs and gradients; the memory that is carried stays fp32."""
    options = random_options(6, **TWO, **WEIGHTED, attention_span=6)
    model = build(stack, options)
    x = torch.randn(STEPS, B, options.decoder_embed_dim)
    results = []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            y, state = run(model, x, [8, 9])
        y.float().pow(2).mean().backward()
        gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
        results.append((y.float(), gradients))
        assert state.memory_KCBD.dtype == torch.float32
    for one, other in zip(*results):
        assert (one - other).norm() / one.norm() < 0.05


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("positions", ["key", "key-value", "none"])
@pytest.mark.parametrize("adaptive", [True, False])
def test_previous_composition_is_the_baseline(before, positions, adaptive):
    """Two implementations of the same function: equal outputs, states and gradients, also with carried context."""
    changes = dict(relative_positions=positions, decoder_normalize_before=before, adaptive_span=adaptive)
    options = random_options(5, **PREVIOUS, **changes, attention_span=6, adaptive_span_ramp=3)
    one = build(FeedbackTransformer, options).double()
    other = RelativeTransformer(options).double()
    other.load_state_dict(one.state_dict())
    x = torch.randn(STEPS, B, options.decoder_embed_dim, dtype=torch.double)
    seed = torch.randn_like(x)
    results = []
    for model in (one, other):
        y, state = run(model, x, [8, 9])
        (y * seed).sum().backward()
        results.append({"state": state.memory_KCBD, **{name: p.grad for name, p in model.named_parameters()}})
    compare(*results, 1e-10)


def test_layerdrop_skips_layers():
    """With the same layers dropped, ``previous`` composition is still the baseline. In evaluation none are dropped."""
    options = random_options(5, **PREVIOUS, decoder_layerdrop=0.5)
    one = build(FeedbackTransformer, options)
    other = RelativeTransformer(options)
    other.load_state_dict(one.state_dict())
    x = torch.randn(STEPS, B, options.decoder_embed_dim)
    outputs = []
    for seed in range(5):
        for model in (one, other):
            torch.manual_seed(seed)
            outputs.append(model(x)[0])
        torch.testing.assert_close(outputs[-2], outputs[-1], atol=1e-5, rtol=1e-5)
    assert len({y.sum().item() for y in outputs[::2]}) > 1, "different layers are dropped in different blocks"
    torch.testing.assert_close(one.eval()(x)[0], other.eval()(x)[0], atol=1e-5, rtol=1e-5)


def test_carried_memory_is_constant_but_projections_learn_from_it():
    """Norm and projections are applied to the carried vectors in each block, and learn from them."""
    options = random_options(2, **WEIGHTED, decoder_layers=2, decoder_normalize_before=True)
    model = build(FeedbackTransformer, options).double()
    D = options.decoder_embed_dim
    carried = torch.randn(1, 4, B, D, dtype=torch.double)
    x = torch.randn(1, B, D, dtype=torch.double)
    y, state = model(x, StreamState(carried))
    y.pow(2).sum().backward()
    # A single step sees carried memory only, so these gradients come from it alone.
    for parameter in (model.memory.k_proj.weight, model.memory.v_proj.weight, model.memory.layer_norm.weight):
        assert parameter.grad.abs().max() > 1e-8
    assert not state.memory_KCBD.requires_grad


PERSISTENT = dict(persistent_memory_size=4)
# Options, the last of which is named, and what is said of it.
BAD_OPTIONS = [
    (dict(decoder_layers=0), "must be 1 or more"),
    (dict(attention_span=0), "must be 1 or more"),
    (dict(activation_fn="sine"), "unknown; choose from relu"),
    (dict(attention_dropout=1.0), "must be a probability below 1"),
    (dict(decoder_embed_dim=10, decoder_attention_heads=4), ".*--decoder-head-dim"),
    (dict(memory_composition="topmost"), "unknown; .*same-and-lower"),
    (dict(memory_composition="layer:7"), ".*layer:6"),
    (dict(memory_composition="layer:x"), ".*layer:0"),
    (dict(memory_composition="average:2"), ""),
    (dict(decoder_embed_dim=0), "must be 1 or more"),
    (dict(decoder_ffn_embed_dim=0), "must be 1 or more"),
    (dict(decoder_attention_heads=0), "must be 1 or more"),
    (dict(decoder_head_dim=-1), "must be a width"),
    (dict(persistent_memory_size=-1), "must be a number of vectors"),
    (dict(adaptive_span_loss=0.1), ".*--adaptive-span;"),
    (dict(adaptive_span_init=0.1), ".*--adaptive-span;"),
    (dict(adaptive_span=True, adaptive_span_loss=-0.1), "must be 0 or more"),
    (dict(adaptive_span=True, adaptive_span_init=-0.1), "must be a fraction"),
    (dict(adaptive_span=True, adaptive_span_ramp=0), ""),
    (dict(adaptive_span=True, adaptive_span_init=2.0), ""),
    (dict(persistent_memory_variant="ff-attn"), ".*--persistent-memory-size"),
    (dict(THREE_HEADS, **PERSISTENT, persistent_memory_variant="head-split"), ".*--decoder-attention-heads 3"),
]


@pytest.mark.parametrize("values,problem", BAD_OPTIONS)
def test_bad_options_are_named(values, problem):
    *_, (name, value) = values.items()
    with pytest.raises(UserError, match=f"^--{name.replace('_', '-')} {value}: {problem}"):
        TransformerOptions(**values)


@pytest.mark.parametrize(
    "name", ["encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads"]
)
def test_bad_options_of_encoders_are_named(name):
    with pytest.raises(UserError, match=f"^--{name.replace('_', '-')} 0: must be 1 or more"):
        EncoderOptions(**{name: 0})


def test_the_least_options():
    sizes = dict.fromkeys(("layers", "embed_dim", "ffn_embed_dim", "attention_heads"), 1)
    spans = dict(attention_span=1, adaptive_span=True, adaptive_span_ramp=1, adaptive_span_init=1, adaptive_span_loss=0)
    decoder = TransformerOptions(**{f"decoder_{name}": size for name, size in sizes.items()}, **spans, dropout=0)
    encoder = EncoderOptions(**{f"encoder_{name}": size for name, size in sizes.items()})
    assert decoder.attention_span == decoder.adaptive_span_init == encoder.encoder_layers == 1


def test_memory_that_is_carried():
    """In training some steps more than the longest span, so that spans can grow; never more than --attention-span."""
    stack = FeedbackTransformer(random_options(1, attention_span=100, adaptive_span=False))
    assert [stack.train(training).carried_steps([9, 7]) for training in (True, False)] == [73, 9]
    assert stack.train().carried_steps([60]) == 100


def test_state_of_another_model_is_refused():
    one = FeedbackTransformer(random_options(1, memory_composition="average"))
    x = torch.randn(4, B, one.options.decoder_embed_dim)
    state = RelativeTransformer(random_options(1, decoder_layers=3))(x)[1]
    with pytest.raises(ValueError, match="memory"):
        one(x, state)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models(stack, dtype):
    """Everything in half precision, as with --fp16 and --bf16 on a GPU: outputs, gradients, single steps."""
    spans = dict(adaptive_span=True, adaptive_span_ramp=4, attention_span=6)
    options = random_options(6, **WEIGHTED, **spans, decoder_layers=2)
    model = build(stack, options)
    x = torch.randn(STEPS, B, options.decoder_embed_dim)
    expected, _ = run(model, x, [8, 9])
    model = model.to(dtype)
    y, state = run(model, x.to(dtype), [8, 9])
    assert y.dtype == state.memory_KCBD.dtype == dtype
    assert (y.float() - expected).norm() / expected.norm() < (0.01 if dtype == torch.float16 else 0.06)
    y.float().pow(2).mean().backward()
    assert all(p.grad.isfinite().all() and p.grad.dtype == dtype for p in model.parameters())
    ring = model.eval().new_ring("keys-values")
    steps = torch.stack([model.run_step(x_BD, ring) for x_BD in x.to(dtype)])
    assert steps.dtype == dtype and (steps.float() - expected).norm() / expected.norm() < 0.06


@pytest.mark.parametrize("stack", STACKS)
def test_checkpointed_activations(stack):
    """Less is kept for the backward pass; outputs and every gradient are the same, dropout included."""
    kept, results = [], []
    for checkpointed in (False, True):
        sizes = dict(decoder_layers=3, decoder_ffn_embed_dim=200, attention_span=12, adaptive_span=False)
        loop = dict(
            step_loop="reference", checkpoint_activations=checkpointed
        )  # (the C++ loop keeps packed weights, too)
        options = random_options(6, **sizes, **loop, dropout=0.2, activation_dropout=0.2)
        torch.manual_seed(1)
        model = build(stack, options)
        x = torch.randn(STEPS, B, options.decoder_embed_dim)
        kept.append(saved_bytes(lambda model=model, x=x: model(x)[0], model))
        torch.manual_seed(2)
        y, _ = model(x)
        y.pow(2).sum().backward()
        results.append([y, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert kept[1] < kept[0] / 2
    for one, other in zip(*results):
        torch.testing.assert_close(one, other)


def test_largest_product():
    """From the width to that of the hidden layer, or to the persistent vectors; where these are few, to the width."""
    sizes = dict(decoder_embed_dim=10, decoder_ffn_embed_dim=18, persistent_memory_size=25)
    stacks = [stack(random_options(1, **sizes)) for stack in STACKS]
    assert [stack.largest_product(3) for stack in stacks] == [2 * 3 * 10 * 18, 2 * 3 * 10 * 18, 2 * 3 * 10 * 25]
    few = dict(decoder_embed_dim=10, decoder_ffn_embed_dim=7, persistent_memory_size=5)
    assert [stack(random_options(1, **few)).largest_product(1) for stack in STACKS] == [200, 200, 200]
