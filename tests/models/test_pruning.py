"""Layers to keep of a checkpoint: only what belongs to the others is dropped."""

import argparse

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.models.pruning import LAYER_WEIGHTS, parse_layers, prune


def state(encoder=3, decoder=2):
    """A checkpoint of so many layers, each with one parameter, which holds the layer's index."""
    layers = {
        f"{side}.layers.{l}.w": torch.tensor([l])
        for side, n in (("encoder", encoder), ("decoder", decoder))
        for l in range(n)
    }
    return {**layers, LAYER_WEIGHTS: torch.arange(decoder + 1), "decoder.embed.w": torch.zeros(1)}


def options(**given):
    """A configuration of three encoder and two decoder layers."""
    names = dict(encoder_layers=3, decoder_layers=2, encoder_layers_to_keep=None, decoder_layers_to_keep=None)
    return argparse.Namespace(**{**names, **given})


def test_an_encoder_alone():
    """The decoder and the weights of its layers stay."""
    parameters = state()
    cfg = options(encoder_layers_to_keep="0,2")
    prune(parameters, cfg)
    assert [parameters[f"encoder.layers.{l}.w"].item() for l in range(2)] == [0, 2]
    assert parameters[LAYER_WEIGHTS].tolist() == [0, 1, 2] and len(parameters) == 2 + 2 + 2
    assert (cfg.encoder_layers, cfg.decoder_layers, cfg.encoder_layers_to_keep) == (2, 2, None)


def test_a_decoder_alone():
    parameters = state()
    cfg = options(decoder_layers_to_keep="1")
    prune(parameters, cfg)
    assert parameters["decoder.layers.0.w"].item() == 1 and "decoder.layers.1.w" not in parameters
    assert parameters[LAYER_WEIGHTS].tolist() == [0, 2] and "encoder.layers.2.w" in parameters
    assert (cfg.encoder_layers, cfg.decoder_layers) == (3, 1)


def test_a_decoder_without_such_weights():
    parameters = state()
    del parameters[LAYER_WEIGHTS]
    prune(parameters, options(decoder_layers_to_keep="0"))
    assert LAYER_WEIGHTS not in parameters


def test_a_checkpoint_that_was_pruned_before():
    parameters = state(encoder=2)
    prune(parameters, options(encoder_layers_to_keep="0,2"))
    assert [parameters[f"encoder.layers.{l}.w"].item() for l in range(2)] == [0, 1]


def test_numbers_of_layers():
    assert parse_layers("--x", "5,0,2") == [0, 2, 5]
    for wrong in ("", "a", "-1", "1,1", "1.5"):
        with pytest.raises(UserError, match=f"^--x {wrong}: give layer numbers"):
            parse_layers("--x", wrong)


def test_models_without_pruning():
    parameters = state()
    prune(parameters, None)
    prune(parameters, options())
    assert list(parameters) == list(state())
