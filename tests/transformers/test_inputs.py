"""A call that does not continue the memory that it gives, or none, is an error: never other text."""

import pytest
import torch

pytest.importorskip("transformers")
import fb_fairseq.transformers as ft  # noqa: E402  before anything of transformers, as users do
from fb_fairseq.errors import UserError  # noqa: E402
from fb_fairseq.transformers.inputs import CACHE_FIELD  # noqa: E402
from fb_fairseq.transformers.trainer import _counted  # noqa: E402
from tests.transformers.models import build, translator  # noqa: E402

EOS = 2
IDS = torch.randint(4, 25, (2, 6), generator=torch.Generator().manual_seed(2))
MASKS = {"whole": torch.ones_like(IDS), "padded": torch.ones_like(IDS).index_fill(1, torch.tensor([0]), 0)}


def lose_cache(inputs, input_ids):
    """As a release that no longer gives the memory back."""
    inputs.pop(CACHE_FIELD, None)


def rename_cache(inputs, input_ids):
    """As a release that gives it another name."""
    if CACHE_FIELD in inputs:
        inputs["memory"] = inputs.pop(CACHE_FIELD)


def read_twice(inputs, input_ids):
    """As a release that gives all tokens beside the memory of the first ones."""
    inputs["input_ids"] = input_ids


def break_link(model, change, monkeypatch):
    """Have ``generate`` change what it tells the model."""
    prepare = model.prepare_inputs_for_generation

    def changed(input_ids, **kwargs):
        inputs = prepare(input_ids, **kwargs)
        change(inputs, input_ids)
        return inputs

    monkeypatch.setattr(model, "prepare_inputs_for_generation", changed)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "change,message",
    [
        (lose_cache, " 0 in past_key_values; give the memory"),
        (rename_cache, "^memory: not an argument"),
        (read_twice, " 6 in past_key_values; give the memory|past_key_values holds the beginning"),
    ],
)
@pytest.mark.parametrize("kind", ["feedback", "transformer-absolute", "lstm"])
def test_generation_without_its_memory(kind, change, message, mask, monkeypatch):
    model = build(kind)
    options = dict(attention_mask=MASKS[mask], max_new_tokens=4, pad_token_id=1, do_sample=False)
    model.generate(IDS, **options)
    break_link(model, change, monkeypatch)
    with pytest.raises(UserError, match=message):
        model.generate(IDS, **options)


@pytest.mark.parametrize(
    "beams,change,message",
    [
        (1, lose_cache, "do not begin with </s>"),
        (2, lose_cache, "not padded at the end alone"),
        (1, rename_cache, "^memory: not an argument"),
    ],
)
def test_translation_without_its_memory(beams, change, message, monkeypatch):
    model = translator("post-norm")
    break_link(model, change, monkeypatch)
    with pytest.raises(UserError, match=message):
        model.generate(IDS, max_new_tokens=6, num_beams=beams, min_new_tokens=4)


def test_translation_that_reads_tokens_twice():
    model = translator("post-norm")
    targets = torch.tensor([[EOS, 4], [EOS, 5]])
    with torch.no_grad():
        cache = model(IDS, decoder_input_ids=targets).past_key_values
        longer = torch.tensor([[EOS, 4, 5], [EOS, 5, 6]])
        with pytest.raises(UserError, match="begin with </s>, but past_key_values holds the first 2 tokens"):
            model(IDS, decoder_input_ids=longer, past_key_values=cache)
        with pytest.raises(UserError, match="begin with </s>, but past_key_values holds the first 2 tokens"):
            model(IDS, decoder_input_ids=longer[:, :2], past_key_values=cache)
        with pytest.raises(UserError, match="decoder_attention_mask: of shape 2x5 for 1 new tokens after 2"):
            model(IDS, decoder_input_ids=longer[:, -1:], past_key_values=cache, decoder_attention_mask=torch.ones(2, 5))
        found = model(IDS, decoder_input_ids=longer[:, -1:], past_key_values=cache)
        expected = model(IDS, decoder_input_ids=longer).logits[:, -1:]
        torch.testing.assert_close(found.logits, expected, atol=1e-5, rtol=1e-5)


def test_positions_and_masks():
    """Those that continue the memory are accepted, others are not, wherever they are told."""
    model = build("feedback")
    with torch.no_grad():
        cache = lambda: model(IDS[:, :4]).past_key_values
        rest = IDS[:, 4:]
        expected = model(IDS).logits[:, 4:]
        for right in (
            {"position_ids": torch.tensor([[4, 5]])},
            {"position_ids": torch.tensor([4, 5])},
            {"attention_mask": torch.ones(2, 6)},
            {"attention_mask": torch.ones(2, 2)},
        ):
            logits = model(rest, past_key_values=cache(), **right).logits
            torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
        for wrong in (
            {"position_ids": torch.tensor([[0, 1]])},
            {"position_ids": torch.tensor([[4, 5], [5, 6]])},
            {"position_ids": torch.tensor([[4, 5]] * 3)},
            {"position_ids": torch.arange(6)[None]},
            {"attention_mask": torch.ones(2, 5)},
            {"attention_mask": torch.ones(2, 1, 2, 6)},
        ):
            with pytest.raises(UserError, match=f"{next(iter(wrong))}: "):
                model(rest, past_key_values=cache(), **wrong)
        for neither in ([0, 1, 2, 0, 1, 3], [1, 2, 3, 4, 5, 6], [1, 2, 0, 1, 2, 3]):
            with pytest.raises(UserError, match="one text in each row, from position 0"):
                model(IDS, position_ids=torch.tensor([neither]))
        for mask in (None, MASKS["padded"]):
            with pytest.raises(UserError, match="position_ids: not those of tokens that follow the 0"):
                model(IDS, attention_mask=mask, position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]] * 3))


def test_positions_beside_padding():
    """Positions count the tokens of each text; those of padding do not matter."""
    model = build("transformer-absolute")
    mask = MASKS["padded"]
    with torch.no_grad():
        expected = model(IDS, attention_mask=mask).logits
        for filler in (0, 1, 77):
            positions = (mask.cumsum(1) - 1).masked_fill(mask == 0, filler)
            assert model(IDS, attention_mask=mask, position_ids=positions).logits.equal(expected)
        with pytest.raises(UserError, match="position_ids: not those of tokens that follow the 0"):
            model(IDS, attention_mask=mask, position_ids=torch.arange(6)[None])


@pytest.mark.parametrize("kind", ["feedback", "transformer-absolute"])
def test_a_text_of_one_token(kind):
    """Behind padding."""
    model = build(kind)
    mask = torch.tensor([[1] * 6, [0] * 5 + [1]])
    with torch.no_grad():
        found = model(IDS, attention_mask=mask).logits
        torch.testing.assert_close(found[1, 5], model(IDS[1:, 5:]).logits[0, 0], atol=1e-5, rtol=1e-5)


def test_a_memory_does_not_end_in_training_either():
    """Padding at the end would enter it."""
    model = build("feedback").train()
    cache = ft.StreamCache()
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    with pytest.raises(UserError, match="attention_mask: has padding at the end"):
        model(IDS, attention_mask=mask, past_key_values=cache)
    assert cache.position == 0
    assert model(IDS, attention_mask=mask, labels=IDS, use_cache=True).past_key_values is None


@pytest.mark.parametrize("rows", [1, 3])
def test_masks_of_another_number_of_texts(rows):
    """Some loops would read beyond them."""
    mask = torch.ones(rows, 6).index_fill(1, torch.tensor([0]), 0)
    for training in (False, True):
        model = build("feedback").train(training)
        with pytest.raises(UserError, match=f"attention_mask: of shape {rows}x6 for 2 texts; give a row for each"):
            model(IDS, attention_mask=mask)
    with torch.no_grad(), pytest.raises(UserError, match=f"attention_mask: of shape {rows}x6 for 2 texts"):
        translate = translator("post-norm")
        outputs = translate.encoder(IDS)
        translate(attention_mask=mask, encoder_outputs=outputs, decoder_input_ids=torch.full((2, 1), EOS))


def test_unknown_arguments():
    model = build("feedback")
    translate = translator("post-norm")
    labels = torch.tensor([[4, EOS], [5, EOS]])
    nothing = dict(inputs_embeds=None, output_attentions=False, token_type_ids=None)
    assert model(IDS, **nothing).logits.equal(model(IDS).logits)
    translate(IDS, labels=labels, **nothing)
    with pytest.raises(ft.UserError, match="output_hiden_states: not an argument of this model; leave it out .* rel"):
        model(IDS, output_hiden_states=True)
    for name, value in (("inputs_embeds", torch.zeros(2, 6, 16)), ("output_attentions", True)):
        with pytest.raises(UserError, match=f"{name}: not an argument of this model"):
            translate(IDS, labels=labels, **{name: value})
    with pytest.raises(UserError, match="output_hidden_states: not an argument of this model"):
        translate.encoder(IDS, output_hidden_states=True)
    with pytest.raises(UserError, match="input_ids: missing; give tokens, or inputs_embeds"):
        model()


def test_both_names_of_the_memory(caplog):
    model = build("feedback")
    with torch.no_grad():
        expected = model(IDS).logits[:, 4:]
        for name in ("cache", "past_key_values"):
            output = model(IDS[:, :4])
            assert output[CACHE_FIELD] is output.past_key_values is output.cache is not None
            found = model(IDS[:, 4:], **{name: output.past_key_values}).logits
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        with pytest.raises(UserError, match="cache: the same as past_key_values; give one of them"):
            model(IDS, cache=ft.StreamCache(), past_key_values=ft.StreamCache())
        translation = translator("post-norm")(IDS, decoder_input_ids=torch.full((2, 1), EOS))
        assert translation.past_key_values is translation.cache is not None
    assert not caplog.records, "transformers warns about the old name, where it is its own"


def test_options_of_configurations():
    """transformers' names are ours, or refused; so are misspelt ones, and options of other models."""
    sizes = dict(hidden_size=24, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4)
    config = ft.FeedbackTransformerConfig(**sizes, decoder_embed_dim=24)
    assert (config.decoder_embed_dim, config.decoder_ffn_embed_dim, config.decoder_layers) == (24, 32, 3)
    assert config.decoder_attention_heads == 4 and {name: getattr(config, name) for name in sizes} == sizes
    assert config.to_dict()["tie_word_embeddings"] is False
    assert ft.FeedbackTransformerConfig(share_decoder_input_output_embed=True, tie_word_embeddings=True)
    tied = "tie_word_embeddings True: .* give share_decoder_input_output_em"
    foreign = "is no option of feedback_decoder; leave it out"
    both = {"hidden_size": 24, "decoder_embed_dim": 8}
    for kind, message, given in (
        (ft.FeedbackTransformerConfig, "hidden_size 24: contradicts decoder_embed_dim 8", both),
        (ft.FeedbackTransformerConfig, tied, {"tie_word_embeddings": True}),
        (ft.FeedbackDecoderConfig, tied, {"tie_word_embeddings": True}),
        (ft.FeedbackTransformerConfig, "omit_eol: unknown; did you mean omit_eos", {"omit_eol": True}),
        (ft.FeedbackDecoderConfig, "decoder_layer: unknown; did you mean decoder_layers", {"decoder_layer": 3}),
        (ft.FeedbackDecoderConfig, f"attention_span: {foreign}", {"attention_span": 100}),
        (ft.FeedbackDecoderConfig, f"labels: {foreign}", {"labels": True}),
    ):
        with pytest.raises(UserError, match=message):
            kind(**given)
        assert kind(architectures=["x"], torch_dtype="float32", my_note="hello").my_note == "hello"


def test_labels_that_a_trainer_counts():
    """All but the first one, without padding and what is behind it; as given, if they are shifted or have no rows."""
    labels, mask = torch.arange(1, 6)[None], torch.tensor([[0, 1, 1, 0, 1]])
    assert _counted({"labels": labels, "attention_mask": mask})["labels"].tolist() == [[-100, -100, 3, -100, -100]]
    assert _counted({"labels": labels})["labels"].tolist() == [[-100, 2, 3, 4, 5]]
    for batch in ({"labels": labels, "shift_labels": labels, "attention_mask": mask}, {"labels": labels[0]}, {}):
        assert _counted(batch) is batch
