"""Random options for tests of the stacks."""

import random

import torch

from fb_fairseq.modules import AllAttention, TransformerOptions


def random_options(seed: int, **fixed) -> TransformerOptions:
    """Awkward sizes and random switches, but for dropout and the composition ``same``; ``fixed`` options go before."""
    draw = random.Random(seed)
    layers = draw.choice([1, 2, 3])
    values = dict(
        decoder_layers=layers,
        decoder_embed_dim=draw.choice([10, 14]),
        decoder_ffn_embed_dim=draw.choice([7, 18]),
        decoder_attention_heads=draw.choice([2, 3]),
        decoder_head_dim=draw.choice([4, 5]),
        decoder_normalize_before=draw.random() < 0.5,
        no_decoder_final_norm=draw.random() < 0.3,
        activation_fn=draw.choice(["relu", "gelu", "tanh", "relu_squared", "gelu_accurate", "linear"]),
        attention_span=draw.choice([1, 2, 6, 20]),
        relative_positions=draw.choice(["key", "key-value", "none"]),
        memory_composition=draw.choice(
            ["weighted", "average", "same-and-lower", "previous", f"layer:{draw.randint(0, layers)}"]
        ),
        memory_projections=draw.choice(["shared", "per-layer"]),
        adaptive_span=draw.random() < 0.4,
        adaptive_span_ramp=draw.choice([1, 3, 8]),
    )
    return TransformerOptions(**{**values, **fixed})


def random_cuts(seed: int, steps: int):
    """Lengths of blocks that add up to ``steps``."""
    draw = random.Random(seed)
    cuts = []
    while sum(cuts) < steps:
        cuts.append(draw.randint(1, min(7, steps - sum(cuts))))
    return cuts


def randomise(module) -> None:
    """Draw every parameter at random, including those of norms and the layer weights."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)


def random_stack(stack, seed: int, **fixed):
    """A stack of random options and parameters."""
    torch.manual_seed(seed)
    if stack is AllAttention:
        fixed = {"activation_fn": "relu", "persistent_memory_size": 5, **fixed}
    model = stack(random_options(seed, **fixed))
    randomise(model)
    return model
