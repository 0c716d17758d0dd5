"""Sums of the weights' gradients in a loop's backward pass, over tiles of steps.

All sums are at least fp32.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops.attention import Positions
from fb_fairseq.ops.dropout import Dropout, dropout
from fb_fairseq.ops.feedback.block import Block, pieces
from fb_fairseq.ops.feedback.tile import Normed, Tile
from fb_fairseq.ops.feedback.types import EncoderContext, FeedbackWeights
from fb_fairseq.ops.layers import ACTIVATIONS, Affine, Layer, Projection
from fb_fairseq.ops.products import add_product, at_least_fp32
from fb_fairseq.ops.thread_pool import each


def zeros_like(tree: Any) -> Any:
    """Zeros for the sums of the gradients of nested weights, in the same structure and at least fp32."""
    return pytree.tree_map_only(Tensor, lambda x: torch.zeros_like(at_least_fp32(x)), tree)


def in_types_of(weights: Any, sums: Any) -> Any:
    """Sums in the types of the nested weights whose gradients they are."""
    return pytree.tree_map(lambda x, own: x if x is None else x.to(own.dtype), sums, weights)


def add_linear(sums: Affine, d_out_Ro: Tensor, x_Ri: Tensor) -> None:
    """Add the gradients of ``x Wᵀ + b``, from that of its result."""
    add_product(sums.weight, d_out_Ro.t(), x_Ri)
    if sums.bias is not None:
        sums.bias.add_(d_out_Ro.sum(0, dtype=sums.bias.dtype))


def add_norm(sums: Affine, d_normed_TBD: Tensor, normed: Normed) -> None:
    """Add the gradients of a layer norm's weight and bias, from that of its result."""
    _, weight, bias = normed.backward(d_normed_TBD, [False, True, True])
    sums.weight.add_(weight)
    sums.bias.add_(bias)


class BlockGradients:
    """All sums of a block.

    Attributes:
        layers: gradients of the layers' weights; ``span_mask_HS`` is None.
        key_values: of the joint maps to keys and values, by projection.
        memory_norms: of the norms before these maps, by projection.
        mix_KA: of the outputs' shares in the memories.
        slots: of the slots' keys and values [2, I, G, C, E]: of carried slots, then of the block's own.
        positions: of the tables of keys' and of values' positions [S, E], by distance: S first, 1 last.
        span_masks: of each layer, the scores' gradients summed over steps and streams [H, S'], for the nearest S'
            distances: S' first, 1 last.
        encoder: of each layer, of the encoder's keys and values [G, C, E].
    """

    def __init__(self, block: Block):
        self.block = block
        s, weights = block.sizes, block.weights
        wide = {"dtype": block.wide, "device": block.inputs.x_TBD.device}
        self.layers: list[Layer] = [zeros_like(layer._replace(span_mask_HS=None)) for layer in weights.layers]
        self.key_values: list[Affine] = zeros_like(weights.key_values)
        self.memory_norms: list[Affine | None] = zeros_like([p.norm for p in weights.projections])
        self.mix_KA = zeros_like(weights.mix_KA)
        self.slots = block.buffers.zeros(2, s.I, s.G, s.C + s.T, s.E, dtype=block.wide)
        self.positions = [None if x is None else torch.zeros(s.S, s.E, **wide) for x in block.inputs.weights.positions]
        self.span_masks = [None if x is None else torch.zeros(x.log_mask_HS.shape, **wide) for x in weights.spans]
        self.encoder = [
            [torch.zeros(slots.shape, **wide) for slots in (context.keys_GCE, context.values_GCE)]
            for context in block.encoder
        ]

    def add_tile(self, tile: Tile) -> None:
        """Add what the steps of a tile have left in its workspace."""
        tasks = [partial(self._add_layer, tile, l) for l in range(self.block.sizes.L)]
        for add in (self._add_positions, self._add_memories, self._add_spans):
            tasks.append(partial(add, tile))
        each(tasks, self.block.threads)

    def _add_memories(self, tile: Tile) -> None:
        """Add the gradients of the memories' projections, their norms and the mix."""
        block, work, n = self.block, tile.work, tile.steps
        for i, kv in enumerate(block.weights.kv_sets):
            normed = tile.memory_norm[i]
            add_linear(self.key_values[kv.projection], work.d_kv_ITBZ[i, :n].flatten(0, 1), normed.rows(block.dtype))
            if normed.norm is not None:
                add_norm(self.memory_norms[kv.projection], work.d_kv_normed_ITBD[i, :n], normed)
        x_ARD = tile.record.x[:, tile.at : tile.at + n].flatten(1)
        add_product(self.mix_KA, work.d_memory_KTBD[:, :n].flatten(1), x_ARD.t())

    def _add_layer(self, tile: Tile, l: int) -> None:
        """Add the gradients of a layer's weights."""
        block, record, work, n = self.block, tile.record, tile.work, tile.steps
        sums, pre_norm = self.layers[l], block.inputs.options.normalize_before
        attn_norm, ffn_norm = tile.attn_norm[l], tile.ffn_norm[l]
        x = attn_norm.rows(block.dtype) if pre_norm else tile.rows(record.x, l).to(block.dtype)
        add_linear(sums.query, work.dq[:n, l].reshape(-1, block.sizes.X), x)
        add_linear(sums.out, work.d_attention[l, :n].flatten(0, 1), tile.vectors(record.a, l))
        add_norm(sums.attn_norm, work.d_attn_norm[l, :n], attn_norm)
        if block.encoder:
            self._add_cross_attention(tile, l)
        last_x = record.crossed_x if block.encoder else record.attended_x
        x = ffn_norm.rows(block.dtype) if pre_norm else tile.rows(last_x, l).to(block.dtype)
        add_linear(sums.fc1, work.d_hidden[l, :n].flatten(0, 1), x)
        activation, mask = block.inputs.options.activation, block.inputs.dropouts.hidden_LTBF
        act = tile.rows(record.hidden, l)
        if activation != "relu":  # a ReLU's result is what was recorded
            act = ACTIVATIONS[activation](act)
        if mask is not None:
            act = dropout(act, Dropout(tile.mask(mask, l).flatten(0, 1), mask.scale)).to(block.dtype)
        add_linear(sums.fc2, work.d_ffn[l, :n].flatten(0, 1), act)
        add_norm(sums.ffn_norm, work.d_ffn_norm[l, :n], ffn_norm)

    def _add_cross_attention(self, tile: Tile, l: int) -> None:
        """Add the gradients of a layer's attention to the encoder: of its weights, and of the encoder's keys and
        values.
        """
        block, record, work, n = self.block, tile.record, tile.work, tile.steps
        s, sums, normed = block.sizes, self.layers[l].cross, tile.cross_norm[l]
        x = tile.rows(record.attended_x, l).to(block.dtype)
        if block.inputs.options.normalize_before:
            x = normed.rows(block.dtype)
        add_linear(sums.query, work.dcq[:n, l].reshape(-1, s.X), x)
        add_linear(sums.out, work.d_crossed[l, :n].flatten(0, 1), tile.vectors(record.cross_a, l))
        add_norm(sums.attn_norm, work.d_cross_norm[l, :n], normed)
        queries_TGE = tile.vectors(record.cross_q, l).view(n, s.G, s.E)
        d_attended_TGE = work.dca[:n, l].reshape(n, s.G, s.E)
        d_keys_GCE, d_values_GCE = self.encoder[l]
        add_product(d_keys_GCE, work.dcs[:n, l].permute(1, 2, 0), queries_TGE.transpose(0, 1), block.scale)
        p_TGC = self._cross_weights(tile, l).to(block.dtype)
        add_product(d_values_GCE, p_TGC.permute(1, 2, 0), d_attended_TGE.transpose(0, 1))

    def _cross_weights(self, tile: Tile, l: int) -> Tensor:
        """A layer's weights of attention to the encoder after dropout [T, G, C]."""
        n, mask = tile.steps, self.block.inputs.dropouts.cross_LTBHC
        if not self.block.records_weights:
            return tile.work.cross_p[:n, l]
        p_TGC = tile.record.cross_p[tile.at : tile.at + n, l]
        if mask is not None:
            p_TGC = p_TGC * tile.mask(mask, l).flatten(1, 2) * mask.scale
        return p_TGC

    def _add_positions(self, tile: Tile) -> None:
        """Add the gradients of relative positions: sums over rows by distance."""
        block, work, n = self.block, tile.work, tile.steps
        s, (d_key, d_value) = block.sizes, self.positions
        if d_key is not None:
            q_RE = tile.record.q[tile.at : tile.at + n].reshape(-1, s.E)
            add_product(d_key, work.ds_TLGS[:n].reshape(-1, s.S).t(), q_RE, block.scale)
        if d_value is not None:
            add_product(d_value, work.p_TLGS[:n].reshape(-1, s.S).t(), work.da[:n].reshape(-1, s.E))

    def _add_spans(self, tile: Tile) -> None:
        """Add the scores' gradients by head and distance, from which the spans' gradients are computed."""
        s = self.block.sizes
        for l, total_HS in enumerate(self.span_masks):
            if total_HS is not None:
                ds_TGS = tile.work.ds_TLGS[: tile.steps, l]
                ds_TBHS = ds_TGS.unflatten(1, (s.B, s.H))[..., s.S - total_HS.shape[1] :]
                total_HS += ds_TBHS.sum((0, 1), dtype=total_HS.dtype)

    def push_slots(self, tile: Tile) -> None:
        """Add to the gradients of the keys and values before the tile what its steps contribute: to those of keys the
        scores' gradients times queries, to those of values the attention weights times the results' gradients.
        """
        self._push(0, tile, tile.work.ds_TLGW, tile.record.q[tile.at :], self.block.scale)
        self._push(1, tile, tile.work.p_TLGW, tile.work.da, 1.0)

    def _push(self, side: int, tile: Tile, weights_TLGW: Tensor, vectors_TLBX: Tensor, scale: float) -> None:
        """Add weights times vectors of a tile's steps to the gradients of keys (side 0) or values (1)."""
        s, end = self.block.sizes, self.block.sizes.C + tile.first
        slots = min(s.S, end)  # that a step of the tile can reach: the last ones before it
        if slots == 0:
            return
        for i in range(s.I):
            layers = slice(i, i + 1) if s.I > 1 else slice(None)  # that attend to these slots
            weights_YGC = weights_TLGW[: tile.steps, layers, :, s.S - slots : s.S].flatten(0, 1)
            vectors_YGE = vectors_TLBX[: tile.steps, layers].reshape(-1, s.G, s.E)
            pushed_GCE = torch.bmm(weights_YGC.permute(1, 2, 0), vectors_YGE.transpose(0, 1))
            # (baddbmm_ on a slice would go matrix by matrix.)
            self.slots[side, i, :, end - slots : end].add_(pushed_GCE, alpha=scale)

    def add_carried(self) -> None:
        """Add what the carried slots contribute: the memory is constant, its projections and norm learn from it."""
        block, s = self.block, self.block.sizes
        for i, kv in enumerate(block.weights.kv_sets):
            key_values, norm = self.key_values[kv.projection], block.weights.projections[kv.projection].norm
            d_slots = self.slots[:, i].view(2, s.B, s.H, -1, s.E)
            for steps in pieces(s.C, s.B, d_slots.device):
                d_kv_RZ = d_slots[:, :, :, steps].permute(3, 1, 0, 2, 4).reshape(-1, 2 * s.X).to(block.dtype)
                normed = Normed(block.inputs.memory_KCBD[kv.memory, steps], norm)
                add_linear(key_values, d_kv_RZ, normed.rows(block.dtype))
                if norm is not None:
                    d_normed = d_kv_RZ @ block.weights.key_values[kv.projection].weight
                    add_norm(self.memory_norms[kv.projection], d_normed.view(normed.x_TBD.shape), normed)

    def weights(self) -> FeedbackWeights:
        """The gradients of the weights, in the same structure and types."""
        given = self.block.inputs.weights
        layers = [
            in_types_of(own, self.layers[l])._replace(span_mask_HS=self._span_mask(l, own.span_mask_HS))
            for l, own in enumerate(given.layers)
        ]
        projections = []
        for sums, norm_sums, own in zip(self.key_values, self.memory_norms, given.projections):
            width = own.key.weight.shape[0]
            biases = (None, None) if sums.bias is None else sums.bias.split(width)
            key, value = (Affine(*pair) for pair in zip(sums.weight.split(width), biases))
            projections.append(in_types_of(own, Projection(norm_sums, key, value)))
        positions = Positions(*map(self._position_table, given.positions, self.positions))
        return FeedbackWeights(layers, projections, self.mix_KA.to(given.mix_KA.dtype), positions)

    def _span_mask(self, l: int, own_HS: Tensor | None) -> Tensor | None:
        """The gradient of a layer's span mask.

        ``d p_j / d mask_j = p_j (dp_j - Σ p dp) / mask_j``, and the scores' gradient is ``p_j (dp_j - Σ p dp)``.
        """
        if own_HS is None:
            return None
        d_mask_HS, summed_HS = torch.zeros_like(own_HS), self.span_masks[l]
        reached = own_HS[:, : summed_HS.shape[1]]
        d_mask_HS[:, : summed_HS.shape[1]] = torch.where(reached > 0, summed_HS.flip(1) / reached, 0)
        return d_mask_HS

    @staticmethod
    def _position_table(own: Tensor | None, summed_SE: Tensor | None) -> Tensor | None:
        """The gradient of a table of positions, of which the block may have used the first rows only."""
        if own is None:
            return None
        whole = torch.zeros_like(own)
        whole[: len(summed_SE)] = summed_SE.flip(0)
        return whole

    def encoder_contexts(self) -> list[EncoderContext]:
        """The gradients of the encoder's keys and values, in the same structure."""
        s, given = self.block.sizes, self.block.inputs.encoder
        return [
            EncoderContext(
                *(d.view(s.B, s.H, -1, s.E).permute(2, 0, 1, 3).to(given[0].keys_CBHE.dtype) for d in pair), None
            )
            for pair in self.encoder
        ]
