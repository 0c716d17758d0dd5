"""The torch loop: the mathematics of ``reference.py`` operation by operation, with a backward pass written by hand.

Both passes contain only what is sequential, in buffers that are made once per block. The backward pass computes
gradients of activations; what the weights' gradients need of them stays in the tile's workspace. Within a tile, a step
gathers the gradients of its own keys and values from the later steps. Rows of matrices are ordered by step, then by
stream."""

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.loop import Loop, Results
from fb_fairseq.ops.feedback.torch.block import Block, Record
from fb_fairseq.ops.feedback.torch.tile import KeysOrValues, StepIndex, Tile
from fb_fairseq.ops.layers import ACTIVATIONS, Affine, at_least_fp32, dropout, layer_norm, linear


def run_steps(block: Block, record: Record, first: int, last: int, results: Results | None) -> None:
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


def add_residual(x: Tensor, sublayer: Tensor, norm: Affine, result: Tensor, summed: Tensor | None) -> Tensor:
    """Write ``x + sublayer`` to ``result``; with post-norm, the sum to ``summed`` and its norm to ``result``.
    ``summed``: None with pre-norm."""
    if summed is None:
        return torch.add(x, sublayer, out=result)
    return result.copy_(layer_norm(torch.add(x, sublayer, out=summed), norm))


def addmm(out: Tensor, x: Tensor, affine: Affine) -> None:
    """Write ``x Wᵀ + b`` to ``out``."""
    if affine.bias is None:
        torch.mm(x, affine.weight.t(), out=out)
    else:
        torch.addmm(affine.bias, x, affine.weight.t(), out=out)


def run_tile(tile: Tile, d_out_TBD: Tensor, d_x_TBD: Tensor) -> None:
    """Run a tile's steps, from the last to the first; see ``Loop.backward_tile``."""
    block = tile.block
    tile.write_weights()
    s, active = block.sizes, block.inputs.active
    d_out_steps, mix_AK = d_out_TBD[tile.first : tile.last].unbind(0), block.weights.mix_KA.t()
    for i in range(tile.steps - 1, -1, -1):
        step = tile.index(i)
        d_memory_KBD = memory_step(tile, step)
        d_mixed = (mix_AK @ d_memory_KBD.flatten(1)).view(s.L + 1, s.B, s.D).unbind(0)
        d_x = d_out_steps[i] + d_mixed[s.L]
        for l in range(s.L - 1, -1, -1):
            if active[l]:
                d_x = layer_step(tile, step, l, d_x)
            d_x = d_x + d_mixed[l]
        d_x_TBD[step.in_block] = d_x
    tile.sums.push_slots(tile)


def memory_step(tile: Tile, step: StepIndex) -> Tensor:
    """The gradient of the step's memories [K, B, D], through their keys and values."""
    block, s, work, i = tile.block, tile.block.sizes, tile.work, step.in_tile
    d_memory_KBD = work.d_memory_KTBD[:, i].zero_()
    if step.in_block + 1 == s.T:  # no step of the block sees it
        work.d_kv_ITBZ[:, i].zero_()
        work.d_kv_normed_ITBD[:, i].zero_()
        return d_memory_KBD
    for kv_set, kv in enumerate(block.weights.kv_sets):
        d_kv = work.d_kv_ITBZ[kv_set, i].view(s.B, 2, s.H, s.E)
        for side in tile.sides:
            d_kv[:, side.index] = slot_gradient(tile, step, side, kv_set).view(s.B, s.H, s.E)
        d_normed = work.d_kv_ITBZ[kv_set, i] @ block.weights.key_values[kv.projection].weight
        d_memory = d_memory_KBD[kv.memory]
        if block.weights.projections[kv.projection].norm is None:
            d_memory += d_normed
        else:
            d_normed = work.d_kv_normed_ITBD[kv_set, i].copy_(d_normed)
            d_memory += tile.memory_norm[kv_set].step_backward(d_normed, i)
    return d_memory_KBD


def slot_gradient(tile: Tile, step: StepIndex, side: KeysOrValues, kv_set: int) -> Tensor:
    """The gradient [G, E] of the step's keys or values, from the later tiles and from the later steps of this
    one."""
    s, i = tile.block.sizes, step.in_tile
    d_slot_GE = tile.sums.slots[side.index, kv_set, :, s.C + step.in_block]
    if i + 1 == tile.steps:
        return d_slot_GE
    later, layers = slice(i + 1, tile.steps), slice(kv_set, kv_set + 1) if s.I > 1 else slice(None)
    weights_GY = side.weights_TLGW[later, layers, :, s.S + i].reshape(-1, s.G).t().contiguous()
    vectors_GYE = side.vectors_TLBX[later, layers].reshape(-1, s.G, s.E).transpose(0, 1)
    return torch.add(d_slot_GE, torch.bmm(weights_GY[:, None], vectors_GYE)[:, 0], alpha=side.scale)


def layer_step(tile: Tile, step: StepIndex, l: int, d_x: Tensor) -> Tensor:
    """The gradient of a layer's input at one step, from that of its output."""
    block, work, i = tile.block, tile.work, step.in_tile
    layer, pre_norm = block.weights.layers[l], block.inputs.options.normalize_before
    masks = block.masks(l, step.in_block)

    # Feed-forward sublayer.
    d_normed_kept, normed = work.d_ffn_norm.at[i][l], tile.ffn_norm[l]
    if not pre_norm:
        d_x = normed.step_backward(d_normed_kept.copy_(d_x), i)
    d_out = work.d_ffn.at[i][l].copy_(dropout(d_x, masks.ffn_residual_LTBD))
    d_hidden, hidden = work.d_hidden.at[i][l], tile.record.hidden.at[step.in_record][l]
    d_act = dropout(d_out @ layer.fc2.weight, masks.hidden_LTBF)
    activation_backward(block.inputs.options.activation, d_act, hidden, d_hidden)
    d_normed = input_gradient(d_hidden, layer.fc1.weight, d_normed_kept if pre_norm else None)
    if pre_norm:
        d_normed = normed.step_backward(d_normed, i)
    d_x = d_x + d_normed

    # Attention to the encoder.
    if block.encoder:
        d_normed_kept, normed = work.d_cross_norm.at[i][l], tile.cross_norm[l]
        if not pre_norm:
            d_x = normed.step_backward(d_normed_kept.copy_(d_x), i)
        d_out = work.d_crossed.at[i][l].copy_(dropout(d_x, masks.cross_residual_LTBD))
        torch.mm(d_out, layer.cross.out.weight, out=work.dca.at[i][l])
        cross_backward(tile, step, l)
        d_normed = input_gradient(work.dcq.at[i][l], layer.cross.query.weight, d_normed_kept if pre_norm else None)
        if pre_norm:
            d_normed = normed.step_backward(d_normed, i)
        d_x = d_x + d_normed

    # Attention to the memory.
    d_normed_kept, normed = work.d_attn_norm.at[i][l], tile.attn_norm[l]
    if not pre_norm:
        d_x = normed.step_backward(d_normed_kept.copy_(d_x), i)
    d_out = work.d_attention.at[i][l].copy_(dropout(d_x, masks.attention_residual_LTBD))
    torch.mm(d_out, layer.out.weight, out=work.da.at[i][l])
    attention_backward(tile, step, l)
    if l == 0:
        return d_x  # its queries depend on the embedding alone: they follow at the tile's end, all steps at once
    d_normed = input_gradient(work.dq.at[i][l], layer.query.weight, d_normed_kept if pre_norm else None)
    if pre_norm:
        d_normed = normed.step_backward(d_normed, i)
    return d_x + d_normed


def attention_backward(tile: Tile, step: StepIndex, l: int) -> None:
    """From the gradient of a step's attention output to those of its scores and queries."""
    block, s, work, i, t = tile.block, tile.block.sizes, tile.work, step.in_tile, step.in_block
    window = block.windows[l]
    n = window.lengths[t]
    if n == 0:
        work.dq.at[i][l].zero_()
        return
    da_G1E, dq_G1E, ds_Gn = work.da.heads[i][l], work.dq.heads[i][l], work.ds.at[i][l]
    p_Gn = tile.record.p.at[step.in_record][l]
    if n < s.S:
        p_Gn, ds_Gn = p_Gn[:, s.S - n :], ds_Gn[:, s.S - n :]
    key_positions, value_positions = block.weights.key_positions_SE, block.weights.value_positions_SE
    if value_positions is None:
        dp_G1n = torch.bmm(da_G1E, window.values_GEn[t])
    else:
        dp_G1n = torch.baddbmm(da_G1E @ value_positions[s.S - n :].t(), da_G1E, window.values_GEn[t])
    dp_Gn = dropout(dp_G1n[:, 0], block.attention_dropout(l, t, n))
    ds_G1n = softmax_backward(dp_Gn, p_Gn).to(block.dtype)[:, None]
    ds_Gn.copy_(ds_G1n[:, 0])
    if key_positions is None:
        torch.bmm(ds_G1n, window.keys_GnE[t], out=dq_G1E)
        work.dq.at[i][l].mul_(block.scale)
    else:
        positions_nE = key_positions if n == s.S else key_positions[s.S - n :]
        torch.baddbmm(
            ds_G1n @ positions_nE, ds_G1n, window.keys_GnE[t], beta=block.scale, alpha=block.scale, out=dq_G1E
        )


def cross_backward(tile: Tile, step: StepIndex, l: int) -> None:
    """Backward pass of the attention to the encoder. The scores' gradients are kept with their scale."""
    block, work, i = tile.block, tile.work, step.in_tile
    keys_GCE, values_GCE = block.encoder[l][:2]
    dca_G1E, dcq_G1E, dcs_GC = work.dca.heads[i][l], work.dcq.heads[i][l], work.dcs.at[i][l]
    p_GC, mask = tile.record.cross_p.at[step.in_record][l], block.cross_dropout(l, step.in_block)
    dp_GC = torch.bmm(dca_G1E, values_GCE.transpose(1, 2))[:, 0]
    dcs_GC.copy_(softmax_backward(dropout(dp_GC, mask), p_GC)).mul_(block.scale)
    torch.bmm(dcs_GC[:, None], keys_GCE, out=dcq_G1E)


def input_gradient(d_out: Tensor, weight: Tensor, out: Tensor | None) -> Tensor:
    """The gradient of a linear map's input; written to ``out`` if it is given."""
    if out is None:
        return d_out @ weight
    if out.dtype == weight.dtype:
        return torch.mm(d_out, weight, out=out)
    return out.copy_(d_out @ weight)


def activation_backward(kind: str, d_act: Tensor, hidden: Tensor, out: Tensor) -> Tensor:
    """From the gradient of an activation's result to that of its input, written to ``out``. ``kind``: a key of
    ``fb_fairseq.ops.layers.ACTIVATIONS``. ``hidden``: the activation's input; of a ReLU, its result."""
    if kind == "relu":
        return torch.ops.aten.threshold_backward.grad_input(d_act, hidden, 0, grad_input=out)
    if kind == "relu_squared":
        return torch.mul(d_act, 2 * hidden.relu(), out=out)
    if kind == "tanh":
        return torch.mul(d_act, 1 - hidden.tanh() ** 2, out=out)
    if kind in ("gelu", "gelu_accurate"):
        approximate = "tanh" if kind == "gelu_accurate" else "none"
        return out.copy_(torch.ops.aten.gelu_backward(d_act, hidden, approximate=approximate))
    return out.copy_(d_act)  # linear


def softmax_backward(dp: Tensor, p: Tensor) -> Tensor:
    """``p (dp - Σ p dp)`` over the last dimension, in the type of ``p``."""
    # (Contiguous, because torch 2.4 reads a view's weights in the wrong order.)
    return torch.ops.aten._softmax_backward_data(dp.to(p.dtype), p.contiguous(), -1, p.dtype)


class TorchLoop(Loop):
    """Runs everywhere, operation by operation; and where another loop does not run."""

    name = "torch"
    summary = "PyTorch's operations, with a backward pass written by hand"
    runs = "everywhere"

    def forward_steps(self, block, record, first, last, results=None) -> None:
        run_steps(block, record, first, last, results)

    def backward_tile(self, block, tile, d_out_TBD, d_x_TBD) -> None:
        run_tile(tile, d_out_TBD, d_x_TBD)
