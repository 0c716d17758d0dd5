"""Options of embeddings and output layer, and what is built from them."""

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.modules.adaptive_input import AdaptiveEmbedding
from fb_fairseq.modules.adaptive_softmax import AdaptiveSoftmax
from fb_fairseq.modules.words import WordOptions, build_word_layers

V, D, PAD = 41, 16, 1
ADAPTIVE = dict(
    adaptive_input=True, adaptive_input_cutoff="7,18", adaptive_softmax_cutoff="7,18", tie_adaptive_weights=True
)


def build(outputs=None, width=D, padding_idx=PAD, **options):
    return build_word_layers(WordOptions(**options), width, V, padding_idx, outputs)


def test_plain():
    words = build(outputs=5)
    assert words.embed_scale == 1 and words.adaptive_softmax is None
    assert words.embed_tokens.weight.shape == (V, D) and not words.embed_tokens.weight[PAD].any()
    assert words.output_projection.weight.shape == (5, D) and words.output_projection.bias is not None


def test_tied():
    words = build(share_decoder_input_output_embed=True)
    assert words.output_projection.weight is words.embed_tokens.weight and words.output_projection.bias is None
    assert words.embed_scale == D**0.5
    assert (words.embed_tokens.weight * words.embed_scale).std().item() == pytest.approx(1, rel=0.1)


def test_adaptive():
    words = build(**ADAPTIVE)
    assert isinstance(words.embed_tokens, AdaptiveEmbedding) and isinstance(words.adaptive_softmax, AdaptiveSoftmax)
    assert words.embed_scale == D**0.5 and words.output_projection is None
    assert words.adaptive_softmax.tail[1][2].weight is words.embed_tokens.weights_for_band(2)[0]
    assert words.adaptive_softmax.tail[1][0].weight is not words.embed_tokens.weights_for_band(2)[1]
    changes = dict(tie_adaptive_proj=True, adaptive_softmax_dropout=0.2, adaptive_softmax_cutoff="7, 18")
    words = build(**{**ADAPTIVE, **changes})
    assert words.adaptive_softmax.dropout_module.p == 0.2
    assert words.adaptive_softmax.tail[1][0].weight is words.embed_tokens.weights_for_band(2)[1]


def test_the_smallest_clusters():
    assert WordOptions(adaptive_softmax_cutoff="1,2").cutoffs("adaptive_softmax_cutoff") == [1, 2]


@pytest.mark.parametrize(
    "changes,message",
    [
        (dict(adaptive_input_cutoff="7,7"), "--adaptive-input-cutoff 7,7: the cut-offs must be increasing"),
        (dict(adaptive_input_cutoff="0,7"), "--adaptive-input-cutoff 0,7: the cut-offs must be increasing"),
        (dict(adaptive_softmax_cutoff="7,b"), "--adaptive-softmax-cutoff 7,b: give word numbers"),
        (dict(adaptive_input_factor=0.5), "--adaptive-input-factor 0.5: must be 1 or more"),
        (dict(adaptive_softmax_dropout=1.5), "--adaptive-softmax-dropout 1.5: must be a probability below 1"),
        (dict(adaptive_softmax_factor=2), "--tie-adaptive-weights needs .*the same cut-offs and factors"),
        (dict(share_decoder_input_output_embed=True), "--share-decoder-input-output-embed: is for plain embeddings"),
        (
            dict(share_decoder_input_output_embed=True, adaptive_input=False, adaptive_input_cutoff=None),
            "--share-decoder-input-output-embed: is for plain embeddings",
        ),
        (
            dict(share_decoder_input_output_embed=True, adaptive_softmax_cutoff=None, tie_adaptive_weights=False),
            "--share-decoder-input-output-embed: is for plain embeddings",
        ),
        (dict(adaptive_input_cutoff=None), "--adaptive-input and --adaptive-input-cutoff go together"),
        (dict(tie_adaptive_weights=False, tie_adaptive_proj=True), "--tie-adaptive-proj needs"),
        (
            dict(adaptive_softmax_cutoff=None, tie_adaptive_weights=False, adaptive_softmax_bias=True),
            "--adaptive-softmax-bias: .*give --adaptive-softmax-cutoff",
        ),
    ],
)
def test_bad_options_are_refused(changes, message):
    """Bad values, and options that contradict each other."""
    with pytest.raises(UserError, match=message):
        WordOptions(**{**ADAPTIVE, **changes})


@pytest.mark.parametrize(
    "sizes,message",
    [
        (dict(outputs=18), "--adaptive-softmax-cutoff 7,18: the vocabulary has only 18 symbols"),
        (
            dict(adaptive_input_factor=1e200, adaptive_softmax_factor=1e200),
            r"--adaptive-input-factor 1e\+200: leaves the last of 3 clusters no width",
        ),
        (dict(width=15), "--adaptive-input-factor 4: leaves the last of 3 clusters no width"),
        (
            dict(width=15, adaptive_input=False, adaptive_input_cutoff=None, tie_adaptive_weights=False),
            "--adaptive-softmax-factor 4: leaves the last of 3 clusters no width",
        ),
        (dict(padding_idx=7), "--adaptive-input-cutoff 7,18: padding is symbol 7"),
    ],
)
def test_sizes_that_do_not_fit(sizes, message):
    with pytest.raises(UserError, match=message):
        build(**{**ADAPTIVE, **sizes})
