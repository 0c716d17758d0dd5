"""The torch loop's forward pass: the mathematics of ``reference.py``, in buffers that are made once per block.

The loop contains only what is sequential. Rows of matrices are ordered by step, then by stream. Shape suffixes: see
``fb_fairseq/ops/__init__.py``.
"""

from typing import Optional

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.loop import Results
from fb_fairseq.ops.feedback.torch.block import Block, Record
from fb_fairseq.ops.layers import ACTIVATIONS, Affine, at_least_fp32, dropout, layer_norm, linear


def run_steps(block: Block, record: Record, first: int, last: int, results: Optional[Results]) -> None:
    """Run some steps, one after the other; see ``Loop.forward_steps``."""
    s = block.sizes
    for i, query_BX in enumerate(block.first_queries(first, last)):
        t, at = first + i, i if record.steps > 1 else 0
        run_step(block, record, at, t, query_BX)
        if results is None:
            continue
        if results.out_TBD is not None:
            results.out_TBD[t].copy_(record.x.at[at][-1])
        memory_KBD = (block.weights.mix_KA @ record.x.whole[:, at].flatten(1)).view(s.K, s.B, s.D)
        block.memory_KTBD[:, t] = memory_KBD
        if t + 1 < s.T:
            block.slots.project(memory_KBD, s.C + t, 1)
        if results.aligned_TBC is not None:
            o = block.inputs.options
            weights_BHC = record.cross_p.at[at][o.alignment_layer].view(s.B, s.H, -1)
            results.aligned_TBC[t] = weights_BHC[:, : o.alignment_heads].mean(1)


def run_step(block: Block, record: Record, at: int, t: int, first_query_BX: Tensor) -> None:
    """Run the layers on step t, whose slots are filled, and write its activations to the record at step ``at``."""
    pre_norm, r = block.inputs.options.normalize_before, record
    x = r.x.at[at][0]
    x.copy_(block.x_steps[t])
    for l, layer in enumerate(block.weights.layers):
        result = r.x.at[at][l + 1]
        if not block.inputs.active[l]:
            x = result.copy_(x)
            continue
        masks = block.masks(l, t)
        if l == 0:
            r.q.at[at][0].copy_(first_query_BX)
        else:
            addmm(r.q.at[at][l], normed(block, x, layer.attn_norm), layer.query)
        attend(block, r, at, t, l)
        attended = dropout(linear(r.a.at[at][l], layer.out), masks.attention_residual_LTBD)
        summed = None if pre_norm else r.attention_sum.at[at][l]
        x = add_residual(x, attended, layer.attn_norm, r.attended_x.at[at][l], summed)
        if block.encoder:
            addmm(r.cross_q.at[at][l], normed(block, x, layer.cross.attn_norm), layer.cross.query)
            attend_encoder(block, r, at, t, l)
            attended = dropout(linear(r.cross_a.at[at][l], layer.cross.out), masks.cross_residual_LTBD)
            summed = None if pre_norm else r.cross_sum.at[at][l]
            x = add_residual(x, attended, layer.cross.attn_norm, r.crossed_x.at[at][l], summed)
        hidden = r.hidden.at[at][l]
        addmm(hidden, normed(block, x, layer.ffn_norm), layer.fc1)
        # A ReLU works in place: its gradient needs its result only.
        act = hidden.relu_() if block.relu else ACTIVATIONS[block.inputs.options.activation](hidden)
        out = dropout(linear(dropout(act, masks.hidden_LTBF), layer.fc2), masks.ffn_residual_LTBD)
        x = add_residual(x, out, layer.ffn_norm, result, None if pre_norm else r.ffn_sum.at[at][l])


def normed(block: Block, x: Tensor, norm: Affine) -> Tensor:
    """A sublayer's input in the compute type: normalised with pre-norm."""
    return layer_norm(x, norm if block.inputs.options.normalize_before else None).to(block.dtype)


def attend(block: Block, r: Record, at: int, t: int, l: int) -> None:
    """One step's attention over the memory: weights to ``r.p``, the result to ``r.a``."""
    s, window = block.sizes, block.windows[l]
    n = window.lengths[t]
    if n == 0:
        r.a.at[at][l].zero_()
        return
    q_G1E, p_Gn, a_G1E = r.q.heads[at][l], r.p.at[at][l], r.a.heads[at][l]
    if n < s.S:
        p_Gn = p_Gn[:, s.S - n :]
    positions = block.weights.key_positions_SE
    if positions is None:
        scores_Gn = torch.bmm(q_G1E * block.scale, window.keys_GEn[t])[:, 0]
    else:
        positions_En = positions.t() if n == s.S else positions[s.S - n :].t()
        scores_Gn = torch.baddbmm(q_G1E @ positions_En, q_G1E, window.keys_GEn[t], beta=block.scale, alpha=block.scale)[
            :, 0
        ]
    scores_Gn = at_least_fp32(scores_Gn)
    outside = None
    if block.weights.spans[l] is not None:
        log_mask_HS, outside_HS = block.weights.spans[l]
        scores_Gn = (scores_Gn.view(s.B, s.H, n) + log_mask_HS[:, -n:]).view(s.G, n)
        outside = outside_HS[:, -n:]
    if block.far_TBS is not None:
        far = block.far_TBS[t, :, None, s.S - n :]
        outside = far if outside is None else far | outside
    if outside is not None:  # (filled, because what is added to a score that is not a number has no effect)
        scores_Gn.view(s.B, -1, n).masked_fill_(outside, torch.finfo(scores_Gn.dtype).min)
    torch.softmax(scores_Gn, -1, out=p_Gn)
    if outside is not None:  # attention over nothing is zero
        p_Gn.view(s.B, s.H, n).masked_fill_(outside, 0)
    p_Gn = dropout(p_Gn.to(block.dtype), block.attention_dropout(l, t, n))
    torch.bmm(p_Gn[:, None], window.values_GnE[t], out=a_G1E)
    if block.weights.value_positions_SE is not None:
        a_G1E[:, 0] += p_Gn @ block.weights.value_positions_SE[s.S - n :]


def attend_encoder(block: Block, r: Record, at: int, t: int, l: int) -> None:
    """One step's attention over the encoder's output."""
    keys_GCE, values_GCE, _, padding_G1C = block.encoder[l]
    q_G1E, p_GC, a_G1E = r.cross_q.heads[at][l], r.cross_p.at[at][l], r.cross_a.heads[at][l]
    mask = block.cross_dropout(l, t)
    scores_G1C = at_least_fp32(torch.bmm(q_G1E * block.scale, keys_GCE.transpose(1, 2)))
    if padding_G1C is not None:
        scores_G1C.masked_fill_(padding_G1C, float("-inf"))
    torch.softmax(scores_G1C[:, 0], -1, out=p_GC)
    torch.bmm(dropout(p_GC.to(block.dtype), mask)[:, None], values_GCE, out=a_G1E)


def add_residual(x: Tensor, sublayer: Tensor, norm: Affine, result: Tensor, summed: Optional[Tensor]) -> Tensor:
    """Write ``x + sublayer`` to ``result``; with post-norm, the sum to ``summed`` and its norm to ``result``.

    Args:
        summed: None with pre-norm.
    """
    if summed is None:
        return torch.add(x, sublayer, out=result)
    return result.copy_(layer_norm(torch.add(x, sublayer, out=summed), norm))


def addmm(out: Tensor, x: Tensor, affine: Affine) -> None:
    """Write ``x Wᵀ + b`` to ``out``."""
    if affine.bias is None:
        torch.mm(x, affine.weight.t(), out=out)
    else:
        torch.addmm(affine.bias, x, affine.weight.t(), out=out)
