"""Attention to the encoder and all layers' representations, as results with gradients."""

import argparse
import logging

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
)

from fb_fairseq.errors import UserError
from fb_fairseq.models.feedback_decoder import FeedbackDecoderModel
from fb_fairseq.ops.cuda_graphs import log_once
from tests.models.decoders import PAD, batch, build, dictionary


def aligning(**changes):
    """A model of a task with alignments."""
    words = dictionary(14)
    cfg = argparse.Namespace(load_alignments=True)
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words, cfg=cfg)

    class Model(FeedbackDecoderModel):
        """What ``build`` builds, with that task."""

        @classmethod
        def build_model(cls, args, _):
            return FeedbackDecoderModel.build_model(args, task)

    return build(Model, **changes).double().train()


def sample():
    """Two sentences, and which source word each target word translates: pairs of positions in the padded batch."""
    source, target = batch([5, 3]), batch([4, 2])
    pairs = torch.tensor([[0, 0], [4, 1], [2, 2], [0, 4], [1, 5]])
    net_input = dict(src_tokens=source, src_lengths=source.ne(PAD).sum(1), prev_output_tokens=target)
    weights = torch.linspace(0.5, 1, len(pairs))
    return dict(net_input=net_input, target=target, ntokens=6, alignments=pairs, align_weights=weights)


def criterion(weight):
    task = argparse.Namespace(target_dictionary=dictionary(14))
    return LabelSmoothedCrossEntropyCriterionWithAlignment(task, False, 0.1, weight)


@pytest.mark.parametrize(
    "changes",
    [
        dict(),
        dict(decoder_normalize_before=True, memory_projections="per-layer", step_loop="torch"),
        dict(memory_composition="same-and-lower", checkpoint_activations=True, step_loop="cpp"),
    ],
)
def test_gradient_of_the_alignment_loss(changes):
    """Against differences of the loss, parameter by parameter. fairseq's criterion computes it, which rounds to fp32,
    so the other term is written out."""
    model, words = aligning(activation_fn="tanh", **changes), sample()

    def loss():
        output = model(**words["net_input"])
        return output[0].log_softmax(-1)[..., 7].sum() + 2 * criterion(0.0).compute_alignment_loss(words, output)

    loss().backward()
    for name, parameter in model.decoder.named_parameters():
        direction, step = torch.randn_like(parameter), 1e-6
        if name == "embed_tokens.weight":
            direction[PAD] = 0  # a constant
        with torch.no_grad():
            losses = []
            for move in (step, -2 * step):
                parameter.add_(move * direction)
                losses.append(loss().item())
            parameter.add_(step * direction)
        expected = (losses[0] - losses[1]) / (2 * step)
        assert (parameter.grad * direction).sum().item() == pytest.approx(expected, rel=1e-4, abs=1e-5), name


def test_fairseqs_criterion():
    model, words = aligning().float(), sample()
    (loss, _, logged), (plain, _, _) = (criterion(weight)(model, words) for weight in (2.0, 0.0))
    assert loss.item() == pytest.approx(plain.item() + 2 * logged["alignment_loss"]) and logged["alignment_loss"] > 0


def test_only_an_asked_for_attention_costs_the_fast_loop(monkeypatch):
    """Without alignments training runs --step-loop's loop, and returns no attention."""
    model = build().train()
    monkeypatch.setattr(model.decoder.stack, "run_reference_loop", lambda *_: pytest.fail("the reference loop ran"))
    words = sample()["net_input"]
    assert model(**words)[1] == {"attn": [None], "inner_states": None}
    monkeypatch.undo()
    attention = model(**words, alignment_layer=1, alignment_heads=1)[1]["attn"][0]
    assert attention.requires_grad and attention.shape == (2, 4, 5)
    torch.testing.assert_close(model.eval()(**words, alignment_layer=1, alignment_heads=1)[1]["attn"][0], attention)


def test_the_loop_is_logged_once(caplog):
    log_once.cache_clear()
    with caplog.at_level(logging.INFO):
        aligning(), aligning()
    assert [record.message for record in caplog.records if "load-alignments" in record.message] == [
        "--load-alignments: training runs the reference loop, whose attention to the encoder has a gradient"
    ]


@pytest.mark.parametrize("name,value", [("no_cross_attention", True), ("decoder_layerdrop", 0.1)])
def test_alignments_need_the_last_layer(name, value):
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')}: --load-alignments needs .*leave one of them out"):
        aligning(**{name: value})


@pytest.mark.parametrize("train", [False, True])
def test_representations_of_all_layers(train):
    """The embedding, then each layer's output; the same logits as without, and gradients."""
    model = build(decoder_normalize_before=True).double().train(train)
    words = sample()["net_input"]
    plain, _ = model(**words)
    logits, extra = model(**words, return_all_hiddens=True)
    states, decoder = extra["inner_states"], model.decoder
    torch.testing.assert_close(logits, plain)
    assert [state.shape for state in states] == [(4, 2, 12)] * 4
    torch.testing.assert_close(states[0].transpose(0, 1), decoder._embed(words["prev_output_tokens"], 0))
    torch.testing.assert_close(decoder.output_layer(decoder.layer_norm(states[-1].transpose(0, 1))), logits)
    states[2].sum().backward()
    grads = {name: parameter.grad for name, parameter in decoder.named_parameters()}
    assert grads["layers.1.fc2.weight"].any() and grads["layers.2.fc2.weight"].any(), "through the memory"
    with pytest.raises(UserError, match="return_all_hiddens: not in decoding"):
        model.decoder(words["prev_output_tokens"], incremental_state={}, return_all_hiddens=True)
    encoder_states = [
        len(model.encoder(words["src_tokens"], words["src_lengths"], return_all_hiddens=flag)["encoder_states"])
        for flag in (True, False)
    ]
    assert encoder_states == [3, 0]
