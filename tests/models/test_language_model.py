"""The language models inside fairseq: names, padding, streams, embeddings, initial values, pruning, decoding."""

import argparse
import dataclasses
from functools import partial

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.models import language_model
from fb_fairseq.modules.positions import sinusoids
from fb_fairseq.streams.state import StateHandle, StateStore
from tests.models.decoders import dictionary
from tests.models.language_models import MODELS, WIDTHS, FeedbackLM, both, build, configuration, tokens
from tests.modules.options import randomise
from tests.modules.test_dropout import check_rate

VANILLA = list(MODELS)[:2]  # those that have a vanilla Transformer's parameters


@pytest.mark.parametrize("model", VANILLA)
def test_names_are_fairseqs(model):
    """Whatever a vanilla transformer_lm has, is here under the same name and with the same shape."""
    from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig

    switches = dict(decoder_normalize_before=True, no_token_positional_embeddings=True, add_bos_token=False, tpu=False)
    lengths = dict(decoder_input_dim=12, decoder_output_dim=12, max_target_positions=30, tokens_per_sample=30)
    cfg = TransformerLanguageModelConfig(**WIDTHS, **lengths, **switches)
    words = dictionary(20)
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words)
    vanilla = TransformerLanguageModel.build_model(cfg, task).state_dict()
    changes = dict(relative_positions="none", decoder_normalize_before=True)
    if model is FeedbackLM:
        changes["memory_projections"] = "per-layer"
    own = build(model, **changes).state_dict()
    vanilla.pop("decoder.version")
    assert all(own[name].shape == value.shape for name, value in vanilla.items())
    new = {name for name in own if name not in vanilla}
    memory = {"decoder.memory.layer_weights"} if model is FeedbackLM else set()
    assert new == {"decoder.output_projection.bias"} | memory


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("positions", ["key", "none"])
def test_cutting_a_stream_changes_nothing(model, positions):
    """Absolute positions too continue where the previous block ended."""
    decoder = build(model, relative_positions=positions).eval()
    randomise(decoder)
    batch = tokens(2, 23)
    full = decoder(batch)[0]
    for cuts in ([7, 7, 7, 2], [1] * 23):
        store = StateStore()
        offset = 0
        outputs = []
        for block in batch.split(cuts, 1):
            outputs.append(decoder(block, stream=StateHandle(store, (0,), offset))[0])
            offset += block.shape[1]
        torch.testing.assert_close(torch.cat(outputs, 1), full, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("positions", ["key", "none"])
def test_reading_a_text(model, positions):
    """Whole, or token by token, where absolute positions go on."""
    ours, decoder = both(model, relative_positions=positions)
    batch = tokens(1, 9)
    read = ours.reader(9)
    found = torch.stack([read(token) for token in batch[0].tolist()])
    expected = decoder(batch)[0][0]
    torch.testing.assert_close(found, expected.log_softmax(-1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours(batch.t())[0][:, 0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("changes", [{}, dict(adaptive_softmax_cutoff="10,16", adaptive_softmax_factor=2)])
def test_the_most_probable_symbols(changes):
    ours, _ = both(**changes)
    features_BTD = torch.randn(3, 5, 12)
    assert ours.guess(features_BTD).equal(ours.log_probs(features_BTD).argmax(-1))


@pytest.mark.parametrize("model", MODELS)
def test_training_does_not_wait_for_the_device(model, meta_device):
    """Nor does it mix devices."""
    with torch.device("meta"):
        decoder = build(model, relative_positions="none")
        batch = tokens(3, 9)
    decoder(batch)[0].sum().backward()
    assert all(p.grad.device == p.device for p in decoder.parameters())


def test_threads_are_chosen_once(monkeypatch):
    """For the largest product of the first batch; only for a loop on a CPU."""
    chosen = []
    monkeypatch.setattr(language_model, "keep_threads_for_loops", chosen.append)
    for kind in MODELS:
        model = both(kind)[1]
        largest = max(parameter.numel() for parameter in model.parameters() if parameter.dim() == 2)
        for length in (7, 9):
            model.before_train_step({"net_input": {"src_tokens": tokens(2, length)}})
        assert chosen == ([2 * 14 * largest] if kind is FeedbackLM else [])
        chosen.clear()


@pytest.mark.parametrize("model", MODELS)
def test_dropout_of_embeddings(model):
    batch = tokens(3, 9)
    check_rate(partial(build, model), "embedding_dropout", "embed_tokens", lambda model: model(batch)[0])


def test_sinusoids_are_fairseqs():
    from fairseq.modules import SinusoidalPositionalEmbedding

    for width in (12, 13):
        theirs = SinusoidalPositionalEmbedding(width, 1, init_size=50)(tokens(1, 40))[0]
        torch.testing.assert_close(sinusoids(torch.arange(len(theirs)), theirs[0]), theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("model", VANILLA)
def test_initialisation(model):
    """N(0, 1) embeddings, unscaled, with an output layer of its own; tied: fairseq's N(0, 1/D), scaled by sqrt(D)."""
    torch.manual_seed(1)
    changes = dict(decoder_embed_dim=256, decoder_attention_heads=4, decoder_normalize_before=True)
    free = build(model, **changes).decoder
    assert free.embed_tokens.weight[4:].std().item() == pytest.approx(1, abs=0.05)
    assert free.positions.key.std().item() == pytest.approx(1, abs=0.1)
    assert free.embed_scale == 1 and free.output_projection.bias is not None
    tied = build(model, share_decoder_input_output_embed=True, **changes).decoder
    assert tied.output_projection.weight is tied.embed_tokens.weight and tied.output_projection.bias is None
    assert (tied.embed_tokens.weight[4:].std() * tied.embed_scale).item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("composition", ["weighted", "same-and-lower"])
def test_layers_to_keep(composition):
    """A pruned model is the full one with the other layers' weights left out of the memory."""
    changes = dict(memory_composition=composition, memory_projections="per-layer")
    full = build(FeedbackLM, **changes, decoder_layers=3)
    randomise(full)
    state = full.state_dict()
    cfg = configuration(FeedbackLM, **changes, decoder_layers=3, decoder_layers_to_keep="0,2")
    words = dictionary(20)
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words)
    pruned = FeedbackLM.build_model(cfg, task)
    cfg.arch = "feedback_transformer_lm"
    pruned.load_state_dict(dict(state), model_cfg=cfg)
    assert len(pruned.decoder.layers) == 2
    assert pruned.decoder.layers[1].fc1.weight.equal(full.decoder.layers[2].fc1.weight)
    weights = state["decoder.memory.layer_weights"]
    expected = weights[[0, 1, 3]] if composition == "weighted" else weights[[0, 2]][:, [0, 1, 3]]
    assert pruned.decoder.memory.layer_weights.equal(expected)
    assert (cfg.decoder_layers, cfg.decoder_layers_to_keep) == (2, None), "saved with the parameters that are left"
    cfg.decoder_layers, cfg.decoder_layers_to_keep = 3, "0,2"  # the same command resumes
    pruned.load_state_dict(pruned.state_dict(), model_cfg=cfg)
    assert pruned.decoder.memory.layer_weights.equal(expected)
    for layers, kept, message in ((3, "0,3", "0 to 2"), (7, "0,3", "0 to 2"), (3, "1,1", "give layer numbers")):
        cfg.decoder_layers, cfg.decoder_layers_to_keep = layers, kept
        with pytest.raises(UserError, match=f"--decoder-layers-to-keep {kept}.*{message}"):
            pruned.load_state_dict(dict(state), model_cfg=cfg)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("storage", ["keys-values", "vectors"])
@pytest.mark.parametrize(
    "changes",
    [
        dict(relative_positions="key-value"),
        dict(relative_positions="none"),
        dict(decoder_normalize_before=True, memory_projections="per-layer"),
        dict(memory_composition="same-and-lower", attention_span=1),
        dict(memory_composition="previous", attention_span=30),
    ],
)
def test_decoding_equals_the_full_forward(model, storage, changes):
    """One token at a time, and a prompt at once with single steps after it."""
    known = {f.name for f in dataclasses.fields(MODELS[model])}
    changes = {name: value for name, value in changes.items() if name in known}
    decoder = build(model, memory_storage=storage, **changes).eval()
    randomise(decoder)
    batch = tokens(2, 23)
    full = decoder(batch)[0]
    for prompt in (1, 9):
        state, outputs = {}, []
        for length in [prompt, *range(prompt + 1, 24)]:
            outputs.append(decoder.decoder(batch[:, :length], incremental_state=state)[0])
        torch.testing.assert_close(torch.cat(outputs, 1), full, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("storage", ["keys-values", "vectors"])
def test_what_the_memory_keeps(storage):
    """As commands read the model: what was chosen in training; before there was a choice, keys and values."""
    assert both(memory_storage=storage)[0].memory_storage == storage
    assert both()[0].memory_storage == "keys-values"
