"""The translation model in transformers: decoding, padding, saving, training. fairseq is not needed."""

import dataclasses

import pytest
import torch

pytest.importorskip("transformers")
from transformers import AutoConfig, AutoModelForSeq2SeqLM  # noqa: E402

import fb_fairseq.transformers as ft  # noqa: E402  before anything of transformers, as users do
from fb_fairseq.errors import UserError  # noqa: E402
from fb_fairseq.modules import encoder  # noqa: E402
from tests.transformers.models import TRANSLATOR_SHAPE, TRANSLATORS, translator  # noqa: E402

PAD, EOS = 1, 2
LENGTHS = (6, 3, 9)


@pytest.fixture(params=TRANSLATORS)
def model(request):
    return translator(request.param)


@pytest.fixture
def sources():
    """Tokens and mask, padded at the end."""
    draw = torch.Generator().manual_seed(2)
    tokens = torch.full((3, max(LENGTHS)), PAD)
    for row, n in enumerate(LENGTHS):
        tokens[row, :n] = torch.randint(4, 25, (n,), generator=draw)
        tokens[row, n - 1] = EOS
    return tokens, (tokens != PAD).long()


@pytest.fixture
def labels():
    return torch.tensor([[5, 9, 20, 2], [7, 2, -100, -100], [4, 4, 2, -100]])


@pytest.mark.parametrize("options", [dict(), dict(num_beams=3), dict(num_beams=2, num_return_sequences=2)])
def test_generation(model, sources, options):
    """Padded sources, at either side, are translated as alone, and as without a cache."""
    tokens, mask = sources
    options = dict(max_new_tokens=12, do_sample=False, **options)
    together = model.generate(tokens, attention_mask=mask, **options)
    order = torch.arange(tokens.shape[1])
    left = torch.stack([row[(order - tokens.shape[1] + n) % tokens.shape[1]] for row, n in zip(tokens, LENGTHS)])
    assert (left[:, -1] == EOS).all()
    assert model.generate(left, attention_mask=(left != PAD).long(), **options).tolist() == together.tolist()
    assert model.generate(left, **options).tolist() == together.tolist(), "the mask of pads is the default"
    repeats = options.get("num_return_sequences", 1)
    for row, n in enumerate(LENGTHS):
        alone = model.generate(tokens[row : row + 1, :n], **options)
        own = together[row * repeats : (row + 1) * repeats, : alone.shape[1]]
        assert own.tolist() == alone.tolist()
        uncached = model.generate(tokens[row : row + 1, :n], use_cache=False, **options)
        assert uncached.tolist() == alone.tolist()


def test_device_map(sources, tmp_path):
    """On one device; parameters on disk are refused."""
    pytest.importorskip("accelerate")
    model, (tokens, mask) = translator("post-norm"), sources
    expected = model.generate(tokens, attention_mask=mask, max_new_tokens=8).tolist()
    model.save_pretrained(tmp_path)
    for device_map in ("cpu", "auto", {"encoder": "cpu", "decoder": "cpu"}):
        again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, device_map=device_map)
        assert again.generate(tokens, attention_mask=mask, max_new_tokens=8).tolist() == expected
    for parts in ({"encoder": "disk", "decoder": "cpu"}, {"encoder": "cpu", "decoder": "disk"}):
        again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, device_map=parts, offload_folder=tmp_path / "disk")
        with pytest.raises(UserError, match="device_map: parameters on disk are not supported"):
            again(tokens, mask, decoder_input_ids=torch.full((3, 1), EOS))


def test_results_as_a_tuple(model, sources, labels):
    """If the call or the configuration asks for one."""
    given = dict(input_ids=sources[0], labels=labels)
    expected = model(**given).to_tuple()
    found = [model(**given, return_dict=False)]
    model.config.return_dict = False
    found.append(model(**given))
    for values in found:
        assert type(values) is tuple
        torch.testing.assert_close(values, expected)
    assert model(**given, return_dict=True).loss == expected[0]


def test_hooks_of_attention_to_the_encoder(sources, labels, caplog):
    """They do not run, and the log says so."""
    model = translator("post-norm")
    model.decoder.stack.layers[0].encoder_attn.register_forward_hook(lambda *_: pytest.fail("it has run"))
    model(input_ids=sources[0], labels=labels)
    assert "EncoderAttention: its hooks do not run" in caplog.text


def test_repeated_sources(model, sources):
    """A cache whose texts are repeated decodes each of them as before."""
    tokens, mask = sources
    with torch.no_grad():
        first = model(tokens, mask, decoder_input_ids=torch.full((3, 1), EOS))
        first.past_key_values.batch_repeat_interleave(2)
        new = torch.tensor([[4], [5], [6], [7], [8], [9]])
        encoded = first.encoder_last_hidden_state.repeat_interleave(2, 0)
        carried = dict(encoder_outputs=(encoded,), past_key_values=first.past_key_values)
        step = model(attention_mask=mask.repeat_interleave(2, 0), decoder_input_ids=new, **carried)
        whole = model(tokens.repeat_interleave(2, 0), decoder_input_ids=torch.cat([torch.full((6, 1), EOS), new], 1))
    torch.testing.assert_close(step.logits[:, 0], whole.logits[:, 1], atol=1e-5, rtol=1e-5)


def test_saving(model, sources, labels, tmp_path):
    """The same logits to the bit; tied parameters are saved once, and stay tied."""
    tokens, mask = sources
    logits = model(tokens, mask, labels=labels).logits
    model.save_pretrained(tmp_path)
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    assert again(tokens, mask, labels=labels).logits.equal(logits)
    assert sum(p.numel() for p in again.parameters()) == sum(p.numel() for p in model.parameters())
    assert isinstance(AutoConfig.from_pretrained(tmp_path), ft.FeedbackDecoderConfig)
    half = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    with torch.no_grad():
        found = half(tokens, mask, labels=labels).logits.float()
    assert all(p.dtype == torch.bfloat16 for p in half.parameters())
    assert found.sub(logits).abs().max() < 0.1 * logits.abs().max()
    assert half.generate(tokens, max_new_tokens=4).shape[0] == 3


def test_loss(model, sources, labels):
    """Mean negative log-likelihood of the labels; its gradients reach every parameter."""
    tokens, mask = sources
    output = model(tokens, mask, labels=labels)
    assert output.past_key_values is None
    counted = labels != -100
    expected = -output.logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0][counted].mean()
    torch.testing.assert_close(output.loss, expected)
    torch.testing.assert_close(model(tokens, mask, labels=labels, num_items_in_batch=18).loss, expected / 2)
    model.train()(tokens, mask, labels=labels).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_gradient_checkpointing(sources, labels):
    """Activations are computed again; with dropout, too, gradients stay the same."""
    gradients = []
    for checkpointing in (False, True):
        model = translator("pre-norm", dropout=0.2, attention_dropout=0.1, activation_dropout=0.1).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
            assert model.decoder.stack.options.checkpoint_activations and model.encoder.options.checkpoint_activations
        torch.manual_seed(5)
        model(*sources, labels=labels).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    torch.testing.assert_close(*gradients)


def test_an_encoder_that_recomputes(sources, monkeypatch):
    """Only where there is a backward pass."""
    computed = []
    monkeypatch.setattr(encoder, "checkpoint", lambda run, *given, **how: computed.append(how) or run(*given))
    tokens, mask = sources
    for recomputing in (False, True):
        model = translator("pre-norm").train().encoder
        model.options = dataclasses.replace(model.options, checkpoint_activations=recomputing)
        model(tokens, mask.bool())
        assert computed == [{"use_reentrant": False}] * (2 * recomputing)
    model.eval()(tokens, mask.bool())
    with torch.no_grad():
        model.train()(tokens, mask.bool())
    assert len(computed) == 2


def test_layer_drop(sources, labels):
    model = translator("post-norm", encoder_layerdrop=0.9, decoder_layerdrop=0.5).train()
    losses = {model(*sources, labels=labels).loss.item() for _ in range(10)}
    assert len(losses) > 1


def test_bad_input(sources):
    tokens, mask = sources
    model = translator("learned")
    with pytest.raises(UserError, match="decoder_input_ids: missing; give them, or labels, or call generate"):
        model(tokens)
    targets = torch.tensor([[EOS, 4, 5]] * 3)
    gap = torch.tensor([[1, 0, 1]] * 3)
    for wrong in (torch.cat([mask, mask[:, :1]], 1), mask[:, 1:], mask[:1]):
        with pytest.raises(UserError, match="^attention_mask: of shape "):
            model(tokens, wrong, decoder_input_ids=targets)
        with pytest.raises(UserError, match="^attention_mask: of shape "):
            model(None, wrong, decoder_input_ids=targets, encoder_outputs=model.encoder(tokens))
    with pytest.raises(UserError, match="not padded at the end alone"):
        model(tokens, decoder_input_ids=targets, decoder_attention_mask=gap)
    model(tokens, decoder_input_ids=targets, decoder_attention_mask=torch.tensor([[1, 1, 0]] * 3))
    with pytest.raises(UserError, match="input_ids: missing; give the sources"):
        model()
    with pytest.raises(UserError, match="cannot be changed"):
        model.resize_token_embeddings(50)
    size = model.config.source_vocab_size
    assert model.resize_token_embeddings(size).weight is model.get_input_embeddings().weight
    with pytest.raises(
        UserError, match=r"has 41 tokens, but the model has positions for only 40 \(max_target_positions\)"
    ):
        model(tokens, decoder_input_ids=torch.full((3, 41), EOS))
    with torch.no_grad():
        cache = model(tokens, decoder_input_ids=torch.full((3, 1), EOS)).past_key_values
    with pytest.raises(UserError, match="no gradient; call the model in torch.no_grad"):
        model(tokens, decoder_input_ids=torch.full((3, 1), 4), past_key_values=cache)
    with pytest.raises(UserError, match="cannot be used for other sources"):
        cache.reset()
    with pytest.raises(UserError, match="needs one dictionary"):
        ft.FeedbackDecoderConfig(**{**TRANSLATOR_SHAPE, "share_all_embeddings": True})


@pytest.mark.parametrize("shared", ["share_decoder_input_output_embed", "share_all_embeddings"])
def test_tied_words(shared):
    assert ft.FeedbackDecoderConfig(**{shared: True}).has_tied_words()
    assert not ft.FeedbackDecoderConfig().has_tied_words()
