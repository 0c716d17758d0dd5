"""--init-from-transformer: what is loaded, derived, new or unused, and the errors if the file does not fit."""

import argparse
import logging

import pytest
import torch
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer_lm import TransformerLanguageModel, base_lm_architecture

from fb_fairseq.errors import UserError
from fb_fairseq.models import initialisation
from fb_fairseq.models.checkpoints import plain_options
from fb_fairseq.models.former_names import update_names
from fb_fairseq.models.initialisation import initialise
from fb_fairseq.models.language_models import FeedbackTransformerLanguageModel, RelativeTransformerLanguageModel
from fb_fairseq.trained_model import LEFT_OUT
from tests.models.decoders import PAD, batch, build, dictionary
from tests.models.language_models import build as build_lm

NORMS = [False, True]
LM_WIDTHS = dict(decoder_embed_dim=12, decoder_ffn_embed_dim=18, decoder_attention_heads=2)
LM_SIZES = dict(decoder_layers=2, **LM_WIDTHS, decoder_normalize_before=True)


def vanilla(path, **changes):
    """A vanilla translation model, saved to a file: without changes with a configuration, as of fairseq 0.12; with any
    with a Namespace, as 0.10."""
    model = build(TransformerModel, **changes)
    heads = dict(decoder_attention_heads=2, encoder_attention_heads=3, activation_fn="relu")
    norms = dict(decoder_normalize_before=False, encoder_normalize_before=False)
    args = argparse.Namespace(**{**heads, **norms, **changes})
    old = {"model": model.state_dict(), "args": args}
    torch.save(old if changes else {**old, "cfg": {"model": args}, "args": None}, path)
    return model


def outputs(model):
    """A translation model's logits for the same sentences each time."""
    torch.manual_seed(1)
    source = batch([5, 7, 2])
    target = batch([6, 4, 5])
    return model(source, source.ne(PAD).sum(1), target)[0]


@pytest.mark.parametrize("pre_norm", NORMS)
def test_per_layer_projections_load_by_name(tmp_path, caplog, pre_norm):
    norms = dict(decoder_normalize_before=pre_norm)
    theirs = vanilla(tmp_path / "v.pt", **norms).state_dict()
    model = build(memory_projections="per-layer", **norms)
    with caplog.at_level(logging.INFO):
        initialise(model, str(tmp_path / "v.pt"))
    own = model.state_dict()
    assert all(own[name].equal(theirs[name]) for name in theirs if not LEFT_OUT.match(name))
    assert "0 derived, 1 new (decoder.memory.layer_weights), 0 left" in caplog.text


@pytest.mark.parametrize("pre_norm", NORMS)
def test_shared_projections_are_derived(tmp_path, pre_norm):
    """With one layer, deriving changes nothing: the norm's parameters move into the projection's."""
    norms = dict(decoder_normalize_before=pre_norm, decoder_layers=1)
    vanilla(tmp_path / "v.pt", **norms)
    models = [build(memory_projections=kind, **norms) for kind in ("per-layer", "shared")]
    for model in models:
        initialise(model, str(tmp_path / "v.pt"))
    models[1].decoder.memory.layer_weights.data.copy_(models[0].decoder.memory.layer_weights)
    torch.testing.assert_close(*map(outputs, models), atol=1e-5, rtol=1e-5)


def test_rules_and_layers(tmp_path, caplog):
    """The mean, first and last of the layers that are taken from a deeper model."""
    norms = dict(decoder_normalize_before=True)
    theirs = vanilla(tmp_path / "v.pt", **norms, decoder_layers=4).decoder.layers
    models = {}
    with caplog.at_level(logging.INFO):
        for rule in ("mean", "first", "last"):
            model = build(**norms, decoder_layers=2)
            initialise(model, str(tmp_path / "v.pt"), "1,3", rule)
            models[rule] = model.decoder
    assert models["mean"].layers[1].fc1.weight.equal(theirs[3].fc1.weight)

    def folded(layer):
        norm, key = layer.self_attn_layer_norm, layer.self_attn.k_proj
        return key.weight * norm.weight, key.bias + key.weight @ norm.bias

    one = folded(theirs[1])
    other = folded(theirs[3])
    for part, name in enumerate(("weight", "bias")):
        mean, first, last = (getattr(models[rule].memory.k_proj, name) for rule in ("mean", "first", "last"))
        torch.testing.assert_close(mean, (one[part] + other[part]) / 2)
        torch.testing.assert_close(first, one[part])
        torch.testing.assert_close(last, other[part])
    assert models["mean"].memory.layer_norm.weight.eq(1).all() and not models["mean"].memory.layer_norm.bias.any()
    assert "6 derived (decoder.memory.k_proj, decoder.memory.v_proj, decoder.memory.layer_norm)" in caplog.text
    assert "left in the file (decoder.layers.0.self_attn.k_proj, " in caplog.text


def test_nested_configurations():
    """fairseq 0.11 and later: model configurations whose encoder and decoder options are nested."""
    nested = {"decoder": {"attention_heads": 4, "normalize_before": True}, "no_scale_embedding": True}
    expected = {"decoder_attention_heads": 4, "decoder_normalize_before": True, "no_scale_embedding": True}
    assert plain_options(nested) == expected


def test_names_of_old_checkpoints(tmp_path):
    """fairseq 0.8: queries, keys and values in one matrix; 0.6: numbered norms."""
    saved = vanilla(tmp_path / "v.pt").state_dict()
    new = build(memory_projections="per-layer")
    initialise(new, str(tmp_path / "v.pt"))
    attention = "decoder.layers.1.encoder_attn."
    for part in ("weight", "bias"):
        saved[f"{attention}in_proj_{part}"] = torch.cat([saved.pop(f"{attention}{x}_proj.{part}") for x in "qkv"])
        saved[f"decoder.layers.0.layer_norms.1.{part}"] = saved.pop(f"decoder.layers.0.encoder_attn_layer_norm.{part}")
        saved[f"encoder.layers.0.layer_norms.1.{part}"] = saved.pop(f"encoder.layers.0.final_layer_norm.{part}")
    torch.save({"model": saved, "args": argparse.Namespace(arch="transformer")}, tmp_path / "old.pt")
    old = build(memory_projections="per-layer")
    initialise(old, str(tmp_path / "old.pt"))
    for name, value in new.state_dict().items():
        if not LEFT_OUT.match(name) and "layer_weights" not in name:
            assert value.equal(old.state_dict()[name]), name


@pytest.mark.parametrize("tied", [False, True])
def test_output_layers_of_old_checkpoints(tied):
    """Before fairseq 0.9 they were called embed_out, and not saved where they are the embeddings."""
    words = torch.rand(5, 3)
    output = torch.rand(5, 3)
    parameters = {"decoder.embed_tokens.weight": words, **({} if tied else {"decoder.embed_out": output})}
    update_names(parameters)
    found = parameters.pop("decoder.output_projection.weight")
    assert found is (words if tied else output) and list(parameters) == ["decoder.embed_tokens.weight"]


def test_an_adaptive_softmax_of_an_old_checkpoint():
    """It has no other output layer."""
    parameters = {
        "decoder.embed_tokens.weight": torch.rand(5, 3),
        "decoder.adaptive_softmax.head.weight": torch.rand(2, 3),
    }
    names = list(parameters)
    update_names(parameters)
    assert list(parameters) == names


def vanilla_lm(path, **changes):
    """A vanilla language model of the sizes ``LM_SIZES``, saved to a file as fairseq 0.12 does."""
    more = dict(decoder_input_dim=12, decoder_output_dim=12, max_target_positions=30, tokens_per_sample=30)
    args = argparse.Namespace(**LM_SIZES, **more, base_layers=0, **changes)
    base_lm_architecture(args)
    words = dictionary(20)
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words, dictionary=words)
    model = TransformerLanguageModel.build_model(args, task)
    torch.save({"model": model.state_dict(), "cfg": {"model": args}, "args": None}, path)
    return model


@pytest.mark.parametrize("arch", [FeedbackTransformerLanguageModel, RelativeTransformerLanguageModel])
@pytest.mark.parametrize("tied", [False, True])
def test_language_models(tmp_path, caplog, arch, tied):
    """From fairseq's own: the factor that it multiplies embeddings by moves into them where ours have none."""
    theirs = vanilla_lm(tmp_path / "v.pt", share_decoder_input_output_embed=tied).decoder
    options = dict(share_decoder_input_output_embed=tied, init_from_transformer=str(tmp_path / "v.pt"))
    with caplog.at_level(logging.INFO):
        decoder = build_lm(arch, **LM_SIZES, **options, attention_span=7).decoder
    words = torch.arange(24)
    ours, expected = (each.embed_tokens(words) * each.embed_scale for each in (decoder, theirs))
    torch.testing.assert_close(ours, expected)
    assert decoder.output_projection.weight.equal(theirs.output_projection.weight)
    assert decoder.layers[1].self_attn.q_proj.weight.equal(theirs.layers[1].self_attn.q_proj.weight)
    assert "decoder.positions.key" in caplog.text.partition(" new ")[2]


def test_language_model_with_adaptive_input(tmp_path):
    """Its embeddings are of another form, and multiplied by sqrt(width): another model needs the same option."""
    adaptive = dict(adaptive_input=True, adaptive_input_cutoff="8", adaptive_input_factor=2)
    vanilla_lm(tmp_path / "v.pt", share_decoder_input_output_embed=False, **adaptive)
    with pytest.raises(UserError, match="are multiplied by sqrt.*give the same .* or --adaptive-input"):
        initialise(build_lm(FeedbackTransformerLanguageModel, **LM_SIZES), str(tmp_path / "v.pt"))


def test_a_factor_cannot_move_into_tied_embeddings(tmp_path):
    """The output layer has none."""
    tied = dict(share_decoder_input_output_embed=True)
    vanilla_lm(tmp_path / "v.pt", no_scale_embedding=True, **tied)
    with pytest.raises(UserError, match=r"are not multiplied by sqrt\(width\), those of the new model are; give"):
        initialise(build_lm(FeedbackTransformerLanguageModel, **LM_SIZES, **tied), str(tmp_path / "v.pt"))


def test_language_model_from_the_baseline(tmp_path):
    """From a trained relative_transformer_lm, which also has positions and spans."""
    sizes = dict(attention_span=7, adaptive_span=True, decoder_normalize_before=True)
    theirs = build_lm(RelativeTransformerLanguageModel, **sizes)
    with torch.no_grad():
        for layer in theirs.decoder.layers:
            layer.self_attn.adaptive_span.z.uniform_()
    saved = {"relative_positions": "key", "share_decoder_input_output_embed": False}
    torch.save({"model": theirs.state_dict(), "cfg": {"model": saved}}, tmp_path / "v.pt")
    own = build_lm(FeedbackTransformerLanguageModel, memory_projections="per-layer", **sizes)
    initialise(own, str(tmp_path / "v.pt"))
    state = own.state_dict()
    assert all(state[name].equal(value) for name, value in theirs.state_dict().items())
    for changes in (dict(adaptive_span_ramp=9), dict(attention_span=6)):
        options = {**saved, "adaptive_span": True, **changes}
        torch.save({"model": theirs.state_dict(), "cfg": {"model": options}}, tmp_path / "v.pt")
        with pytest.raises(UserError, match="was trained with --(adaptive-span-ramp 9|attention-span 6), not "):
            initialise(own, str(tmp_path / "v.pt"))


@pytest.mark.parametrize(
    "changes,layers,message",
    [
        (dict(decoder_layers=2), "", "has 3 decoder layers, the model 2; choose 2 .* --init-layers, for example 0,1"),
        (dict(decoder_layers=2), "0,3", "--init-layers 0,3: give 2 of the layers 0 to 2 of --init-from-transformer "),
        (dict(decoder_layers=2), "one", "--init-layers one: give layer numbers"),
        (dict(decoder_ffn_embed_dim=20), "", r"decoder.layers.0.fc1.weight \[18, 12\] \(the model needs \[20, 12\]\)"),
        (dict(decoder_attention_heads=4), "", "was trained with --decoder-attention-heads 2, not 4"),
        (dict(decoder_normalize_before=True), "", "was trained with --decoder-normalize-before False, not True"),
        (dict(encoder_layers=3), "", "does not have encoder.layers.2.self_attn.k_proj, .* more"),
        (dict(encoder_layers=1), "", "has encoder.layers.1.self_attn.k_proj, .*which the model has not"),
        (dict(share_decoder_input_output_embed=True), "", "embed_tokens.weight and .*output_projection.weight differ"),
        (dict(no_scale_embedding=True), "", "embeddings are multiplied by sqrt.*--no-scale-embedding"),
    ],
)
def test_what_does_not_fit(tmp_path, changes, layers, message):
    vanilla(tmp_path / "v.pt")
    with pytest.raises(UserError, match=message) as error:
        initialise(build(**changes), str(tmp_path / "v.pt"), layers)
    assert "\n" not in str(error.value)


def test_another_dictionary(tmp_path):
    saved = vanilla(tmp_path / "v.pt").state_dict()
    saved["decoder.embed_tokens.weight"] = saved["decoder.output_projection.weight"] = torch.zeros(5, 12)
    torch.save({"model": saved, "cfg": {"model": {"_name": "transformer"}}}, tmp_path / "v.pt")
    with pytest.raises(UserError, match=r"embed_tokens.weight \[5, 12\].*was it trained with another dictionary\?"):
        initialise(build(), str(tmp_path / "v.pt"))


def test_a_file_without_a_suitable_model(tmp_path):
    other = {"model": {"decoder.x": torch.zeros(1)}, "cfg": {"model": {"_name": "transformer"}}}
    torch.save(other, tmp_path / "other.pt")
    problem = build(init_from_transformer=str(tmp_path / "other.pt")).initialisation_problem
    assert "has 0 decoder layers, the model 3; give a Transformer" in problem, (
        "raised by the trainer, unless it resumes from its own checkpoint"
    )


def test_a_summary_of_names():
    """The modules of parameters, four of them."""
    names = [f"{module}.{kind}" for module in "abcdef" for kind in ("weight", "bias")]
    found = [initialisation.summary(names[: 2 * number]) for number in (1, 4, 5, 6)]
    assert found == ["a", "a, b, c, d", "a, b, c, d, … (1 more)", "a, b, c, d, … (2 more)"]
