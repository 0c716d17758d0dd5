"""Each rate of dropout, alone: almost 1, it leaves out all that it is for, in training; in evaluation nothing."""

import re

import pytest
import torch

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer
from fb_fairseq.modules.encoder import EncoderOptions, TransformerEncoder
from fb_fairseq.modules.lstm import LSTM, LSTMOptions
from fb_fairseq.modules.options import PERSISTENT_MEMORY_VARIANTS
from fb_fairseq.ops.dropout import draw_dropout, dropout
from tests.modules.options import random_options, randomise

ALMOST_ONE = 1 - 1e-6
# Rates of layers with attention, and the parameters without which a model computes what such a rate leaves.
LAYERS = {
    "dropout": r"(out_proj|fc2)\.(weight|bias)|persistent_memory\.value",
    "attention_dropout": r"attn\.out_proj\.weight|persistent_memory\.value",
    "activation_dropout": r"fc2\.weight",
    "output_dropout": r"^layer_norm\.weight",
}
LSTMS = {"dropout": r"weight_ih_l[1-9]", "output_dropout": r"^lstm\."}
ENCODERS = {**LAYERS, "dropout": rf"embed_tokens|{LAYERS['dropout']}"}
ENCODERS.pop("output_dropout")


def check_rate(build, name, left_out, forward):
    """Check a rate of the models that ``build`` makes; ``left_out`` is a pattern of parameters' names."""
    models = []
    for rates in ({name: ALMOST_ONE}, {}):
        torch.manual_seed(1)
        models.append(build(**rates))
        randomise(models[-1])
    dropped, plain = models
    expected = forward(plain.eval())
    assert forward(dropped.eval()).equal(expected)
    with torch.no_grad():
        for parameter_name, parameter in plain.named_parameters():
            if re.search(left_out, parameter_name):
                parameter.zero_()
    left = forward(plain)
    assert not torch.allclose(left, expected), "there is something to leave out"
    torch.testing.assert_close(forward(dropped.train()), left, atol=1e-5, rtol=1e-5)


def stack_of(kind, variant, **rates):
    """A stack of a class with these rates of dropout; ``variant``: of All-attention's persistent memory."""
    if kind is LSTM:
        return LSTM(LSTMOptions(decoder_layers=2, decoder_embed_dim=10, **rates))
    sizes = dict(decoder_layers=2, decoder_embed_dim=10, decoder_attention_heads=2, attention_span=6)
    memory = dict(persistent_memory_size=5, persistent_memory_variant=variant) if kind is AllAttention else {}
    norms = dict(decoder_normalize_before=True, no_decoder_final_norm=False, memory_composition="weighted")
    return kind(random_options(4, **sizes, **norms, **memory, **rates))


WITHOUT_FFN = {name: pattern for name, pattern in LAYERS.items() if name != "activation_dropout"}
RATES = {FeedbackTransformer: LAYERS, RelativeTransformer: LAYERS, AllAttention: WITHOUT_FFN, LSTM: LSTMS}
CASES = [
    (kind, name, variant)
    for kind, rates in RATES.items()
    for name in rates
    for variant in (PERSISTENT_MEMORY_VARIANTS if kind is AllAttention else [""])
]


@pytest.mark.parametrize("kind,name,variant", CASES, ids=lambda value: getattr(value, "__name__", value))
def test_stacks(kind, name, variant):
    torch.manual_seed(2)
    x_TBD = torch.randn(9, 3, 10)
    build = lambda **rates: stack_of(kind, variant, **rates)
    check_rate(build, name, RATES[kind][name], lambda model: model(x_TBD)[0])


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder(name):
    tokens = torch.randint(9, (2, 5))
    kept = torch.ones(2, 5, dtype=torch.bool)
    sizes = dict(encoder_embed_dim=8, encoder_ffn_embed_dim=12, encoder_attention_heads=2, encoder_layers=2)

    def build(**rates):
        options = EncoderOptions(**sizes, no_token_positional_embeddings=True, **rates)
        return TransformerEncoder(options, torch.nn.Embedding(9, 8))

    check_rate(build, name, ENCODERS[name], lambda encoder: encoder(tokens, kept))


def test_kept_entries_are_scaled():
    """So the mean stays as it is; a rate of 0 draws nothing."""
    x = torch.ones(100_000)
    mask = draw_dropout(0.3, x.shape, x)
    assert mask.keep.float().mean().item() == pytest.approx(0.7, abs=0.01)
    assert dropout(x, mask).unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert draw_dropout(0.0, x.shape, x) is None and dropout(x, None) is x
