"""A decoding step over slots in any order computes what the reference loop computes for a block of one step."""

from functools import partial

import pytest
import torch

from fb_fairseq.ops.attention import step_attention
from fb_fairseq.ops.feedback.reference import feedback_step, feedback_steps
from fb_fairseq.ops.feedback.types import BlockInputs, one_or_own, project_context
from tests.ops.feedback.cases import Case


def attentions(weights, options, memory, order):
    """Each layer's attention to all slots, which lie in the given order."""
    contexts = project_context(memory, weights, options)
    distances = len(order) - order
    result = []
    for l, layer in enumerate(weights.layers):
        keys, values = (slots[order] for slots in contexts[one_or_own(l, len(contexts))])
        span = layer.span_mask_HS
        # Beyond a layer's reach its span mask is zero.
        mask = None if span is None else torch.nn.functional.pad(span, (0, len(order)))[:, distances - 1]
        seen = dict(k_CBHE=keys, v_CBHE=values, positions=weights.positions.of_slots(distances), span_mask_HC=mask)
        result.append(partial(step_attention, **seen))
    return result


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("seed", range(12))
@torch.no_grad()
def test_equals_a_block_of_one_step(seed, cross):
    case = Case(
        seed, steps=1, cross=cross, attention_span=6, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0
    )
    weights = case.weights()
    options = case.model.loop_options(6, alignment_layer=0 if cross else None, alignment_heads=1)
    inputs = BlockInputs(case.x, case.memory, weights, options, encoder=case.encoder)
    (expected,) = feedback_steps(inputs)
    order = torch.randperm(case.memory.shape[1])
    layers = attentions(weights, options, case.memory, order)
    attend = lambda l, query: layers[l](query)
    step = feedback_step(case.x[0], attend, weights, options, encoder=case.encoder)
    for field in ("out_BD", "memory_KBD", "aligned_BC"):
        torch.testing.assert_close(getattr(step, field), getattr(expected, field), atol=1e-10, rtol=1e-10)
    assert (step.aligned_BC is None) == (not cross)
