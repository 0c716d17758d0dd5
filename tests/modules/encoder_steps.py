"""Decoding steps with attention to an encoder, against plain ones."""

import torch

from fb_fairseq.ops.feedback.step_inputs import StepInputs


def compare_decoding_with_an_encoder(case, hypotheses, tolerance):
    """Steps by the model's own loop equal plain ones: outputs, memories and weights of the first layer's attention.

    Args:
        case: a ``Case`` with an encoder; it cannot be used otherwise afterwards.
        hypotheses: rows that are decoded per sentence, of which the case has as many as streams.
        tolerance: absolute and relative.
    """
    model = case.model.eval()
    span = max(case.reaches)
    case.reaches = [span] * len(case.reaches)
    weights = case.weights()
    model.loop_weights = lambda *_: weights
    options = model.loop_options(span, alignment_layer=0, alignment_heads=None)
    x_BD = torch.randn(case.x.shape[1] * hypotheses, model.options.decoder_embed_dim, dtype=case.x.dtype)
    rings = model.new_ring(), model.new_ring()
    for _ in range(4):
        rings[1].make_room()
        ours = model.decode_step(x_BD, rings[0], options, case.encoder)
        plain = model.reference_step(StepInputs(x_BD, rings[1], options, case.encoder))
        rings[1].advance()
        for field in ("out_BD", "memory_KBD", "aligned_BC"):
            torch.testing.assert_close(getattr(ours, field), getattr(plain, field), atol=tolerance, rtol=tolerance)
        x_BD = plain.out_BD
