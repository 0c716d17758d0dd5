"""The fast step loop, backward, written by hand.

The loop goes back step by step and computes gradients of activations only. It works in tiles of some steps: after each,
the weights' gradients are one product over the tile's rows, and the gradients of older keys and values one product over
the tile's steps and layers. Within a tile a step gathers its key's and value's gradients from the later steps.
Sums over steps are fp32 at least. Shape suffixes: see ``fb_fairseq/ops/feedback/forward.py``; W slots of a tile.
"""

from typing import List, Optional

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.forward import Block, Record, pieces
from fb_fairseq.ops.feedback.tile import Gradients, Normed, Tile, Workspace, add_product, cast
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackWeights
from fb_fairseq.ops.layers import (
    ACTIVATIONS,
    Affine,
    CrossAttention,
    Dropout,
    Layer,
    Projection,
    at_least_fp32,
    dropout,
)

TILE_ROWS = 256  # about so many rows make a matrix product efficient


class Backward:
    """One backward pass over a block."""

    def __init__(self, block: Block, record: Optional[Record]):
        self.block, self.record = block, record
        b = block
        layers = b.layers

        def each(name):
            return [Gradients(getattr(layer, name)) for layer in layers]

        self.query, self.out, self.fc1, self.fc2 = (each(name) for name in ("query", "out", "fc1", "fc2"))
        self.norm1, self.norm2 = each("attn_norm"), each("ffn_norm")
        self.kv = [Gradients(affine) for affine in b.kv]
        self.kv_norm = [p.norm and Gradients(p.norm) for p in b.weights.projections]
        self.d_mix_KN = torch.zeros_like(at_least_fp32(b.mix_KN))
        wide = {"dtype": at_least_fp32(b.x[:0]).dtype, "device": b.x.device}
        self.d_slots = b.buffers.zeros(2, b.I, b.G, b.C + b.T, b.E, dtype=wide["dtype"])
        self.d_positions = [None if x is None else torch.zeros(b.S, b.E, **wide) for x in b.weights.positions]
        self.d_masks = [None if x is None else torch.zeros(x[0].shape, **wide) for x in b.spans]
        if b.cross:
            self.cross = [[Gradients(affine) for affine in layer.cross] for layer in layers]
            self.d_encoder = [[torch.zeros(x.shape, **wide) for x in context[:2]] for context in b.encoder]
        # One projection for each set of keys and values.
        self.projections = [b.weights.projections[p] for p in b.projection_of]

    def run(self, d_out_TBD: Tensor) -> Tensor:
        """Fill the sums; returns the gradient of the embeddings."""
        b = self.block
        d_x_TBD = torch.empty_like(b.x)
        size = min(b.T, max(4, TILE_ROWS // b.B))
        self.work, b.windows_of = Workspace(b, size), b.windows()
        recomputed = Record(b, size) if self.record is None else None
        record = self.record or recomputed
        self.views = record.views
        for last in range(b.T, 0, -size):
            first = max(0, last - size)
            # Place of the tile's first step in the record.
            at = 0 if recomputed else first
            if recomputed:
                if b.ragged:
                    recomputed.p_TLGS.zero_()
                for i, query_BX in enumerate(b.first_queries(first, last)):
                    b.step(self.views, i, first + i, query_BX)
            tile = Tile(b, record, self.work, first, last, at)
            self.run_tile(tile, d_out_TBD, d_x_TBD)
            self.finish_tile(tile, d_x_TBD)
        if b.C:
            self.finish_carried()
        return d_x_TBD

    def run_tile(self, tile: Tile, d_out_TBD: Tensor, d_x_TBD: Tensor) -> None:
        b = self.block
        d_out_steps, mix_NK = d_out_TBD[tile.first : tile.last].unbind(0), b.mix_KN.t()
        for i in range(tile.n - 1, -1, -1):
            d_memory_KBD = self.memory_step(tile, i)
            d_steps = (mix_NK @ d_memory_KBD.flatten(1)).view(b.L + 1, b.B, b.D).unbind(0)
            d_x = d_out_steps[i] + d_steps[b.L]
            for l in range(b.L - 1, -1, -1):
                if b.active[l]:
                    d_x = self.layer_step(tile, i, l, d_x)
                d_x = d_x + d_steps[l]
            d_x_TBD[tile.first + i] = d_x

    def memory_step(self, tile: Tile, i: int) -> Tensor:
        """The gradient of the step's memories [K, B, D], through their keys and values."""
        b, work = self.block, self.work
        t = tile.first + i
        d_memory_KBD = work.d_memory_KTBD[:, i].zero_()
        if t + 1 == b.T:  # nobody's context yet
            work.d_kv_ITBX[:, i].zero_()
            work.d_kv_normed_ITBD[:, i].zero_()
            return d_memory_KBD
        later = slice(i + 1, tile.n)
        for s, projection in enumerate(self.projections):
            layers = slice(s, s + 1) if b.I > 1 else slice(None)
            d_kv = work.d_kv_ITBX[s, i].view(b.B, 2, b.H, b.E)
            # From the tiles after this one, and from the later steps of this one.
            for side, weights_TLGW, rows_TLBX, factor in tile.sides:
                d_slot_GE = self.d_slots[side, s, :, b.C + t]
                if i + 1 < tile.n:
                    weights_GY = weights_TLGW[later, layers, :, b.S + i].reshape(-1, b.G).t().contiguous()
                    vectors_GYE = rows_TLBX[later, layers].reshape(-1, b.G, b.E).transpose(0, 1)
                    d_slot_GE = torch.add(d_slot_GE, torch.bmm(weights_GY[:, None], vectors_GYE)[:, 0], alpha=factor)
                d_kv[:, side] = d_slot_GE.view(b.B, b.H, b.E)
            d_normed = work.d_kv_ITBX[s, i] @ b.kv[b.projection_of[s]].weight
            d_memory = d_memory_KBD[b.memory_of[s]]
            if projection.norm is None:
                d_memory += d_normed
            else:
                d_normed = work.d_kv_normed_ITBD[s, i].copy_(d_normed)
                d_memory += tile.memory_norm[s].step_backward(d_normed, i)
        return d_memory_KBD

    def layer_step(self, tile: Tile, i: int, l: int, d_x: Tensor) -> Tensor:
        """The gradient of a layer's input at one step, from that of its output."""
        b, layer, work = self.block, self.block.layers[l], self.work.views
        before, views, at, t = b.options.normalize_before, self.views, tile.at + i, tile.first + i
        masks = b.masks(l, t)

        # Feed-forward sublayer.
        if not before:
            d_x = tile.norm2[l].step_backward(work.d_norm2[i][l].copy_(d_x), i)
        d_out = dropped(d_x, masks.ffn_residual_LTBD, work.d_ffn[i][l])
        d_hidden = activation_backward(
            b.options.activation, d_out @ layer.fc2.weight, views.hidden[at][l], masks.hidden_LTBF, work.d_hidden[i][l]
        )
        d_normed = product(d_hidden, layer.fc1.weight, work.d_norm2[i][l], before)
        if before:
            d_normed = tile.norm2[l].step_backward(d_normed, i)
        d_x = d_x + d_normed
        # Attention to the encoder.
        if b.cross:
            if not before:
                d_x = tile.cross_norm[l].step_backward(work.d_cross_norm[i][l].copy_(d_x), i)
            d_out = dropped(d_x, masks.cross_residual_LTBD, work.d_crossed[i][l])
            torch.mm(d_out, layer.cross.out.weight, out=work.dca[i][l])
            self.cross_backward(at, t, i, l)
            d_normed = product(work.dcq[i][l], layer.cross.query.weight, work.d_cross_norm[i][l], before)
            if before:
                d_normed = tile.cross_norm[l].step_backward(d_normed, i)
            d_x = d_x + d_normed
        # Attention to the memory.
        if not before:
            d_x = tile.norm1[l].step_backward(work.d_norm1[i][l].copy_(d_x), i)
        d_out = dropped(d_x, masks.attention_residual_LTBD, work.d_attention[i][l])
        torch.mm(d_out, layer.out.weight, out=work.da[i][l])
        self.attention_backward(at, t, i, l)
        if l == 0:
            return d_x  # its queries depend on the embedding alone: the whole tile's follow at its end
        d_normed = product(work.dq[i][l], layer.query.weight, work.d_norm1[i][l], before)
        if before:
            d_normed = tile.norm1[l].step_backward(d_normed, i)
        return d_x + d_normed

    def attention_backward(self, at: int, t: int, i: int, l: int) -> None:
        b, work, window = self.block, self.work.views, self.block.windows_of[l]
        n, whole = window.n[t], window.n[t] == b.S
        if n == 0:
            work.dq[i][l].zero_()
            return
        da_G1E, p_Gn, ds_Gn = work.da_heads[i][l], self.views.p[at][l], work.ds[i][l]
        if b.kernels is not None:
            b.kernels.attend_backward(
                da_G1E[:, 0],
                self.views.a_heads[at][l][:, 0],
                b.slots(t, l),
                b.attention_dropout(t, l, 0),
                p_Gn,
                ds_Gn,
                work.dq_heads[i][l][:, 0],
            )
            return
        if not whole:
            p_Gn, ds_Gn = p_Gn[:, b.S - n :], ds_Gn[:, b.S - n :]
        if b.value_positions is None:
            dp_G1n = torch.bmm(da_G1E, window.values_GEn[t])
        else:
            dp_G1n = torch.baddbmm(da_G1E @ b.value_positions[b.S - n :].t(), da_G1E, window.values_GEn[t])
        dp_Gn = dropout(dp_G1n[:, 0], b.attention_dropout(t, l, n))
        ds_G1n = softmax_backward(dp_Gn, p_Gn).to(b.dtype)[:, None]
        ds_Gn.copy_(ds_G1n[:, 0])
        if b.key_positions is None:
            torch.bmm(ds_G1n, window.keys_GnE[t], out=work.dq_heads[i][l])
            work.dq[i][l].mul_(b.scale)
        else:
            positions = b.key_positions if whole else b.key_positions[b.S - n :]
            torch.baddbmm(
                ds_G1n @ positions, ds_G1n, window.keys_GnE[t], beta=b.scale, alpha=b.scale, out=work.dq_heads[i][l]
            )

    def cross_backward(self, at: int, t: int, i: int, l: int) -> None:
        b, work = self.block, self.work.views
        keys_GCE, values_GCE = b.encoder[l][:2]
        if b.kernels is not None:
            b.kernels.attend_backward(
                work.dca_heads[i][l][:, 0],
                self.views.cross_a_heads[at][l][:, 0],
                b.encoder_slots(l),
                b.cross_dropout(t, l),
                self.views.cross_p[at][l],
                work.dcs[i][l],
                work.dcq_heads[i][l][:, 0],
            )
            work.dcs[i][l].mul_(b.scale)
            return
        dp_GC = torch.bmm(work.dca_heads[i][l], values_GCE.transpose(1, 2))[:, 0]
        ds_GC = softmax_backward(dropout(dp_GC, b.cross_dropout(t, l)), self.views.cross_p[at][l])
        ds_GC = work.dcs[i][l].copy_(ds_GC).mul_(b.scale)
        torch.bmm(ds_GC[:, None], keys_GCE, out=work.dcq_heads[i][l])

    def finish_tile(self, tile: Tile, d_x_TBD: Tensor) -> None:
        """Sum up what the steps of a tile have left."""
        b, record, work, n = self.block, tile.record, self.work, tile.n
        before = b.options.normalize_before
        for l, layer in enumerate(b.layers):
            if not b.active[l]:
                continue
            dq_RX, d_norm1 = work.dq_TLBX[:n, l].reshape(-1, b.H * b.E), work.d_norm1_LTBD[l, :n]
            if l == 0:
                d_normed = (dq_RX @ layer.query.weight).view(n, b.B, b.D)
                if before:
                    d_normed = tile.norm1[0].backward(d_norm1.copy_(d_normed), [True, False, False])[0]
                d_x_TBD[tile.first : tile.last] += d_normed
            x = tile.norm1[l].rows(b.dtype) if before else tile.rows(record.x_NTBD, l).to(b.dtype)
            self.query[l].add_linear(dq_RX, x)
            self.out[l].add_linear(work.d_attention_LTBD[l, :n].flatten(0, 1), tile.vectors(record.a_TLBX, l))
            self.norm1[l].add_norm(d_norm1, tile.norm1[l])
            if b.cross:
                self.finish_cross(tile, l)
            x = record.crossed_x_LTBD if b.cross else record.attended_x_LTBD
            x = tile.norm2[l].rows(b.dtype) if before else tile.rows(x, l).to(b.dtype)
            self.fc1[l].add_linear(work.d_hidden_LTBF[l, :n].flatten(0, 1), x)
            act = hidden = tile.rows(record.hidden_LTBF, l)
            if not b.relu:
                act = ACTIVATIONS[b.options.activation](hidden)
            mask = b.dropouts.hidden_LTBF
            if mask is not None:
                act = dropout(act, Dropout(mask.keep[l, tile.first : tile.last].flatten(0, 1), mask.scale)).to(b.dtype)
            self.fc2[l].add_linear(work.d_ffn_LTBD[l, :n].flatten(0, 1), act)
            self.norm2[l].add_norm(work.d_norm2_LTBD[l, :n], tile.norm2[l])
        self.finish_positions(tile)
        self.push_slots(tile)
        for s, projection in enumerate(self.projections):
            p = b.projection_of[s]
            self.kv[p].add_linear(work.d_kv_ITBX[s, :n].flatten(0, 1), tile.memory_norm[s].rows(b.dtype))
            if projection.norm is not None:
                self.kv_norm[p].add_norm(work.d_kv_normed_ITBD[s, :n], tile.memory_norm[s])
        x_NRD = record.x_NTBD[:, tile.at : tile.at + n].flatten(1)
        add_product(self.d_mix_KN, work.d_memory_KTBD[:, :n].flatten(1), x_NRD.t())

    def finish_cross(self, tile: Tile, l: int) -> None:
        b, record, work, n = self.block, tile.record, self.work, tile.n
        query, out, cross_norm = self.cross[l]
        before = b.options.normalize_before
        x = tile.cross_norm[l].rows(b.dtype) if before else tile.rows(record.attended_x_LTBD, l).to(b.dtype)
        query.add_linear(work.dcq_TLBX[:n, l].reshape(-1, b.H * b.E), x)
        out.add_linear(work.d_crossed_LTBD[l, :n].flatten(0, 1), tile.vectors(record.cross_a_TLBX, l))
        cross_norm.add_norm(work.d_cross_norm_LTBD[l, :n], tile.cross_norm[l])
        p_TGC = record.cross_p_TLGC[tile.at : tile.at + n, l]
        mask = b.dropouts.cross_LTBHC
        if mask is not None:
            p_TGC = p_TGC * mask.keep[l, tile.first : tile.last].flatten(1, 2) * mask.scale
        for total, weights_TGC, vectors_RX in zip(
            self.d_encoder[l],
            (work.dcs_TLGC[:n, l], p_TGC.to(b.dtype)),
            (tile.vectors(record.cross_q_TLBX, l), work.dca_TLBX[:n, l].reshape(-1, b.H * b.E)),
        ):
            add_product(total, weights_TGC.permute(1, 2, 0), vectors_RX.view(n, b.G, b.E).transpose(0, 1))

    def finish_positions(self, tile: Tile) -> None:
        """Relative positions and spans: sums over rows by distance."""
        b, work, n = self.block, self.work, tile.n
        ds_TLGS, q_TLBX = work.ds_TLGS[:n], tile.record.q_TLBX[tile.at : tile.at + n]
        if b.key_positions is not None:
            add_product(self.d_positions[0], ds_TLGS.reshape(-1, b.S).t(), q_TLBX.reshape(-1, b.E), b.scale)
        if b.value_positions is not None:
            p_RS = work.p_TLGS[:n].reshape(-1, b.S)
            add_product(self.d_positions[1], p_RS.t(), work.da_TLBX[:n].reshape(-1, b.E))
        for l, total in enumerate(self.d_masks):
            if total is not None and b.active[l]:
                ds_TBHS = ds_TLGS[:, l].unflatten(1, (b.B, b.H))[..., b.S - total.shape[1] :]
                total += ds_TBHS.sum((0, 1), dtype=total.dtype)

    def push_slots(self, tile: Tile) -> None:
        """Add to the gradients of the keys and values before the tile what its steps contribute."""
        b = self.block
        slots = min(b.S, b.C + tile.first)  # that a step of the tile can reach
        if slots == 0:
            return
        columns, places = slice(b.S - slots, b.S), slice(b.C + tile.first - slots, b.C + tile.first)
        for s in range(b.I):
            layers = slice(s, s + 1) if b.I > 1 else slice(None)
            for side, weights_TLGW, rows_TLBX, factor in tile.sides:
                # Copies in the order of the products are faster than strides of the width of all heads.
                weights_YGW = weights_TLGW[: tile.n, layers, :, columns].flatten(0, 1)
                weights_GYW = self.work.weights.shaped(b.G, len(weights_YGW), slots).copy_(weights_YGW.transpose(0, 1))
                vectors_YGE = rows_TLBX[: tile.n, layers].reshape(-1, b.G, b.E)
                vectors_GYE = self.work.vectors.shaped(b.G, len(vectors_YGE), b.E).copy_(vectors_YGE.transpose(0, 1))
                pushed_GWE = self.work.pushed.shaped(b.G, slots, b.E)
                torch.bmm(weights_GYW.transpose(1, 2), vectors_GYE, out=pushed_GWE)
                # (baddbmm_ on a slice would go matrix by matrix.)
                self.d_slots[side, s, :, places].add_(pushed_GWE, alpha=factor)

    def finish_carried(self) -> None:
        """The carried memory is constant; its projections and norm learn from it."""
        b = self.block
        for s, projection in enumerate(self.projections):
            p = b.projection_of[s]
            d_slots = self.d_slots[:, s].view(2, b.B, b.H, -1, b.E)
            for slots in pieces(b.C, b.B):
                d_kv_RX = d_slots[:, :, :, slots].permute(3, 1, 0, 2, 4).reshape(-1, 2 * b.H * b.E).to(b.dtype)
                normed = Normed(b.carried_KCBD[b.memory_of[s], slots], projection.norm)
                self.kv[p].add_linear(d_kv_RX, normed.rows(b.dtype))
                if projection.norm is not None:
                    self.kv_norm[p].add_norm((d_kv_RX @ b.kv[p].weight).view(normed.x.shape), normed)

    def weights(self) -> FeedbackWeights:
        """The gradients in the places of the weights."""
        b = self.block
        layers = []
        for l, layer in enumerate(b.weights.layers):
            mask = None
            if layer.span_mask_HS is not None:
                # d p_j / d mask_j = p_j (dp_j - Σ p dp) / mask_j, and the scores' gradient is p_j (dp_j - Σ p dp).
                mask, n = torch.zeros_like(layer.span_mask_HS), self.d_masks[l].shape[1]
                own = layer.span_mask_HS[:, :n]
                mask[:, :n] = torch.where(own > 0, self.d_masks[l].flip(1) / own, 0)
            cross = None
            if b.cross:
                cross = CrossAttention(*(sums.affine(own) for sums, own in zip(self.cross[l], layer.cross)))
            layers.append(
                Layer(
                    *(
                        sums[l].affine(getattr(layer, name))
                        for name, sums in (
                            ("query", self.query),
                            ("out", self.out),
                            ("attn_norm", self.norm1),
                            ("fc1", self.fc1),
                            ("fc2", self.fc2),
                            ("ffn_norm", self.norm2),
                        )
                    ),
                    span_mask_HS=mask,
                    cross=cross,
                )
            )
        projections = []
        for sums, norm_sums, own in zip(self.kv, self.kv_norm, b.weights.projections):
            width = own.key.weight.shape[0]
            biases = (None, None) if sums.bias is None else sums.bias.split(width)
            key, value = (Affine(*pair) for pair in zip(sums.weight.split(width), biases))
            projections.append(
                Projection(norm_sums and norm_sums.affine(own.norm), cast(key, own.key), cast(value, own.value))
            )
        positions = []
        for own, d in zip(b.weights.positions, self.d_positions):
            whole = None if d is None else torch.zeros_like(own)
            if d is not None:
                whole[: b.S] = d.flip(0)
            positions.append(whole)
        return FeedbackWeights(
            layers, projections, self.d_mix_KN.to(b.weights.mix_KN.dtype), type(b.weights.positions)(*positions)
        )

    def encoder(self) -> List[EncoderContext]:
        """The gradients in the places of the encoder's keys and values."""
        b = self.block
        return (
            [
                EncoderContext(*(d.view(b.B, b.H, -1, b.E).permute(2, 0, 1, 3).to(b.encoder_dtype) for d in pair), None)
                for pair in self.d_encoder
            ]
            if b.cross
            else []
        )


def dropped(d_x: Tensor, mask: Optional[Dropout], out: Tensor) -> Tensor:
    """To ``out``, which keeps it for the end of the tile."""
    return out.copy_(dropout(d_x, mask))


def product(d_out: Tensor, weight: Tensor, kept: Tensor, keep: bool) -> Tensor:
    """The gradient of a linear map's input; kept, where it is also that of a norm's output."""
    if not keep:
        return d_out @ weight
    if kept.dtype == weight.dtype:
        return torch.mm(d_out, weight, out=kept)
    return kept.copy_(d_out @ weight)


def activation_backward(kind: str, d_act: Tensor, hidden: Tensor, mask: Optional[Dropout], out: Tensor) -> Tensor:
    """From the gradient of what goes into fc2 to that of what fc1 gives, to ``out``."""
    d_act = dropout(d_act, mask)
    if kind == "relu":
        return torch.ops.aten.threshold_backward.grad_input(d_act, hidden, 0, grad_input=out)
    if kind == "relu_squared":
        return torch.mul(d_act, 2 * hidden.relu(), out=out)
    if kind == "tanh":
        return torch.mul(d_act, 1 - hidden.tanh() ** 2, out=out)
    if kind in ("gelu", "gelu_accurate"):
        approximate = "tanh" if kind == "gelu_accurate" else "none"
        return out.copy_(torch.ops.aten.gelu_backward(d_act, hidden, approximate=approximate))
    return out.copy_(d_act)


def softmax_backward(dp: Tensor, p: Tensor) -> Tensor:
    """``p (dp - Σ p dp)`` over the last dimension."""
    # (Contiguous: torch 2.4 reads a view's weights in the wrong order.)
    return torch.ops.aten._softmax_backward_data(dp.to(p.dtype), p.contiguous(), -1, p.dtype)
