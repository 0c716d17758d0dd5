"""Options of feedback_decoder: from YAML as from a command line, and none of fairseq's without an effect."""

import argparse
import dataclasses

import pytest
from fairseq import models
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerConfig
from omegaconf import OmegaConf

from fb_fairseq.errors import UserError
from fb_fairseq.models.feedback_decoder_config import GROUPS, UNSUPPORTED
from tests.models.decoders import build, dictionary

SMALL = dict(layers=2, embed_dim=12, ffn_embed_dim=20, attention_heads=2)
FLAT = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SMALL.items()}


def task(**cfg):
    words = dictionary(11)
    return argparse.Namespace(source_dictionary=words, target_dictionary=words, cfg=argparse.Namespace(**cfg))


def build_from(options, arch="feedback_decoder"):
    """A model as fairseq-hydra-train builds it: the node of a configuration, which is closed to new keys."""
    cfg = OmegaConf.create({"model": {"_name": arch, **options}})
    OmegaConf.set_struct(cfg, True)
    return models.build_model(cfg.model, task()), cfg.model


@pytest.mark.parametrize(
    "options",
    [
        dict(encoder=dict(SMALL), decoder=dict(layers=2, ffn_embed_dim=20, attention_heads=2)),
        dict(FLAT),
        dict(decoder=dict(SMALL), **{name: value for name, value in FLAT.items() if name.startswith("encoder")}),
    ],
    ids=["nested", "flat", "both"],
)
def test_yaml_equals_command_line(options):
    more = dict(memory_composition="average", memory_projections="per-layer", activation_fn="gelu", dropout=0.25)
    model, cfg = build_from({**options, **more})
    expected = build(**{**FLAT, **more})
    assert model.decoder.options == dataclasses.replace(expected.decoder.options, attention_span=1024)
    shapes = {name: x.shape for name, x in expected.state_dict().items() if "embed" not in name and "proj" in name}
    own = {name: x.shape for name, x in model.state_dict().items() if name in shapes}
    own.pop("decoder.output_projection.weight"), shapes.pop("decoder.output_projection.weight")
    assert own == shapes
    # What a checkpoint keeps: flat, and whole; from that, the same model.
    assert cfg.decoder_embed_dim == 12 and cfg.dropout == 0.25 and cfg.base_layers == 0 and not set(GROUPS) & set(cfg)
    again, same = build_from({name: value for name, value in OmegaConf.to_container(cfg).items() if name != "_name"})
    assert again.decoder.options == model.decoder.options and same == cfg


def test_named_architecture_in_yaml():
    """Its sizes hold for what is not given."""
    model, cfg = build_from(dict(decoder=dict(layers=1)), "feedback_decoder_iwslt_de_en")
    args = argparse.Namespace(decoder_layers=1)
    ARCH_CONFIG_REGISTRY["feedback_decoder_iwslt_de_en"](args)
    assert {name: cfg[name] for name in vars(args)} == vars(args) and model.decoder.num_layers == 1


@pytest.mark.parametrize(
    "options,message",
    [
        (dict(decoder=dict(leyers=2)), r"model.decoder.leyers: .* no such option \(did you mean layers\?\)"),
        (dict(decoder_leyers=2), "model.decoder_leyers: .* no such option"),
        (dict(memory=1), "model.memory: .* no such option"),
        (dict(decoder=dict(layers="two")), "model.decoder.layers two: .*; correct it"),
        (dict(activation_fn="swish"), "model.activation_fn swish: "),
        (dict(decoder=dict(layers=2), decoder_layers=3), "also given as .*; leave one of them out"),
        (dict(decoder=dict(input_dim=8)), "--decoder-input-dim: .*leave it out"),
        (dict(init_layers="0"), "--init-layers 0: has no effect without --init-from-transformer"),
    ],
)
def test_mistakes_in_yaml(options, message):
    with pytest.raises(UserError, match=message) as raised:
        build_from(options)
    assert "\n" not in str(raised.value)


# Options of fairseq's Transformer that have an effect, with a value other than the default.
SERVED = dict(
    activation_fn="gelu", dropout=0.3, attention_dropout=0.1, activation_dropout=0.1, relu_dropout=0.1,
    max_source_positions=50, max_target_positions=50, share_decoder_input_output_embed=True, share_all_embeddings=True,
    no_token_positional_embeddings=True, layernorm_embedding=True, no_scale_embedding=True, checkpoint_activations=True,
    no_cross_attention=True, no_decoder_final_norm=True, adaptive_softmax_cutoff=[5, 9], encoder_embed_path="file",
    decoder_embed_path="file", decoder_output_dim=8, min_params_to_wrap=10,
    **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in dict(
        SMALL, normalize_before=True, learned_pos=True, layerdrop=0.1, layers_to_keep="0").items()},
)  # fmt: skip
REFUSED = dict(
    cross_self_attention=True, encoder_xformers_att_config="{}", decoder_xformers_att_config="{}", base_layers=1,
    base_sublayers=2, base_shuffle=0, quant_noise_pq=0.1, quant_noise_pq_block_size=4, quant_noise_scalar=0.1,
    adaptive_input=True, tie_adaptive_weights=True, tie_adaptive_proj=True, char_inputs=True, export=True,
    scale_attn=True, scale_fc=True, scale_heads=True, scale_resids=True,
    offload_activations=True, decoder_input_dim=8, adaptive_softmax_dropout=0.1, adaptive_softmax_factor=2,
)  # fmt: skip


if hasattr(TransformerConfig(), "merge_src_tgt_embed"):  # fairseq-fixed
    REFUSED["merge_src_tgt_embed"] = True


def test_every_option_of_fairseq_is_served_or_refused():
    """So an option that fairseq adds is noticed here."""
    names = set()
    for f in dataclasses.fields(TransformerConfig):
        inner = None
        if f.name in GROUPS:
            group = getattr(TransformerConfig(), f.name)  # of fairseq-fixed the class itself
            inner = dataclasses.fields(group if isinstance(group, type) else type(group))
        names |= {f.name} if inner is None else {f"{f.name}_{option.name}" for option in inner}
    names = {name for name in names if not name.endswith("_name")}
    assert names - REFUSED.keys() == SERVED.keys()
    assert REFUSED.keys() >= set(UNSUPPORTED) & names


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(UserError, match=f"^--{name.replace('_', '-')}: .*(leave it out|give .*)$"):
        build(**{name: REFUSED[name]})


def test_output_width_of_tied_embeddings():
    with pytest.raises(UserError, match="--decoder-output-dim: .*leave it out"):
        build(decoder_output_dim=8, share_decoder_input_output_embed=True)


def test_layers_to_keep_on_the_command_line():
    """fairseq's parser makes a list of numbers."""
    assert build(encoder_layers_to_keep=[0], decoder_layers_to_keep=[0, 2]).decoder.num_layers == 2
