"""Every option of fairseq's Transformer is on one of two lists: served, or refused by name."""

import dataclasses

import pytest
from fairseq.models.transformer import TransformerConfig

from fb_fairseq.errors import UserError
from fb_fairseq.models.feedback_decoder_config import UNSUPPORTED
from tests.models.decoders import build

GROUPS = ("encoder", "decoder", "quant_noise")  # of options that are nested in TransformerConfig

# Served options are named here by hand: one of fairseq's that is on neither list fails.
SERVED = set(
    "activation_fn dropout attention_dropout activation_dropout relu_dropout max_source_positions max_target_positions "
    "share_decoder_input_output_embed share_all_embeddings no_token_positional_embeddings layernorm_embedding "
    "no_scale_embedding checkpoint_activations no_cross_attention no_decoder_final_norm adaptive_softmax_cutoff "
    "encoder_embed_path decoder_embed_path decoder_output_dim min_params_to_wrap".split()
)
OF_EACH_SIDE = "layers embed_dim ffn_embed_dim attention_heads normalize_before learned_pos layerdrop layers_to_keep"
SERVED |= {f"{side}_{name}" for side in ("encoder", "decoder") for name in OF_EACH_SIDE.split()}
# Refused ones, each with a value other than the default.
REFUSED = dict(
    cross_self_attention=True,
    encoder_xformers_att_config="{}",
    decoder_xformers_att_config="{}",
    base_layers=1,
    base_sublayers=2,
    base_shuffle=0,
    quant_noise_pq=0.1,
    quant_noise_pq_block_size=4,
    quant_noise_scalar=0.1,
    adaptive_input=True,
    tie_adaptive_weights=True,
    tie_adaptive_proj=True,
    char_inputs=True,
    export=True,
    scale_attn=True,
    scale_fc=True,
    scale_heads=True,
    scale_resids=True,
    offload_activations=True,
)
if hasattr(TransformerConfig(), "merge_src_tgt_embed"):  # fairseq-fixed
    REFUSED["merge_src_tgt_embed"] = True
# Without an effect in fairseq's own Transformer, too; the last two without --adaptive-softmax-cutoff.
NO_EFFECT = {"decoder_input_dim", "adaptive_softmax_dropout", "adaptive_softmax_factor"}


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
    assert names - REFUSED.keys() - NO_EFFECT == SERVED
    assert REFUSED.keys() >= set(UNSUPPORTED) & names


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(UserError, match=f"^--{name.replace('_', '-')}: .*leave it out$"):
        build(**{name: REFUSED[name]})


def test_layers_to_keep_on_the_command_line():
    """fairseq's parser makes a list of numbers."""
    decoder = build(encoder_layers_to_keep=[0], decoder_layers_to_keep=[0, 2], memory_composition="layer:3").decoder
    assert (decoder.num_layers, decoder.stack.memory.argument) == (2, 2)
