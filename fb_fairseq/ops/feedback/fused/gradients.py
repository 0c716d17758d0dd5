"""What the fused loop computes after its steps: gradients of slots, positions and spans, from weights of attention that
are computed again.

Weights and gradients of scores are those of some rows (steps x layers) over some slots, for all streams and heads; they
exist for a few streams at a time. Shape suffixes: see ``fb_fairseq/ops/__init__.py``; c counts slots, t rows' steps and
l rows' layers.
"""

from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.attention import by_distance, by_slot
from fb_fairseq.ops.feedback.fast.gradients import BlockGradients
from fb_fairseq.ops.feedback.fast.tile import Tile
from fb_fairseq.ops.feedback.fused.attention import NO_SCORE
from fb_fairseq.ops.layers import add_product

ENTRIES_AT_ONCE = 1 << 25  # of a matrix of weights


class Weights(NamedTuple):
    """Attention of some rows over some slots.

    Attributes:
        kept_GltC: weights after dropout; d_scores_GltC: gradients of the scores, before their scale.
        q_GRE, d_out_GRE: the rows' queries, and the gradients of what they attended to.
    """

    kept_GltC: Tensor
    d_scores_GltC: Tensor
    q_GRE: Tensor
    d_out_GRE: Tensor


class FusedGradients(BlockGradients):
    """All sums of a block; those of positions and spans are added by ``add_attention``."""

    def _add_positions(self, tile: Tile) -> None:
        """Done by ``add_attention``."""

    def _add_spans(self, tile: Tile) -> None:
        """Done by ``add_attention``."""

    def pull_slots(self, tile: Tile, first: int, last: int) -> None:
        """Add what the tile's later steps contribute to the keys and values of its steps first … last - 1."""
        s = self.block.sizes
        if last == tile.last or first == last:
            return
        for i in range(s.I):
            self._add_slots(tile, i, (last, tile.last), s.C + first, s.C + last, positions=False)

    def add_attention(self, tile: Tile) -> None:
        """Add what a tile's steps contribute to the keys and values before it, to positions, and to spans."""
        s = self.block.sizes
        positions = any(x is not None for x in (*self.positions, *self.span_masks))
        first = max(0, s.C + tile.first - s.S)
        last = s.C + (tile.last - 1 if positions else tile.first)
        if last > first:
            for i in range(s.I):
                self._add_slots(tile, i, (tile.first, tile.last), first, last, positions)

    def _add_slots(self, tile: Tile, i: int, rows: Tuple[int, int], first: int, last: int, positions: bool) -> None:
        """Add what rows of steps contribute to a set's slots first … last - 1 (those before the tile, with
        ``positions``) and to positions and spans."""
        block, s = self.block, self.block.sizes
        layers = [i] if s.I > 1 else list(range(s.L))
        size = s.H * (rows[1] - rows[0]) * (last - first)
        groups = [[l] for l in layers] if positions or size * s.B * s.L > ENTRIES_AT_ONCE else [layers]
        streams = max(1, min(s.B, ENTRIES_AT_ONCE // max(1, size * len(groups[0]))))
        before = min(last, s.C + tile.first) if positions else last  # slots whose gradients are added
        for group in groups:
            for b in range(0, s.B, streams):
                G = slice(b * s.H, min(s.B, b + streams) * s.H)
                w = self._weights(tile, i, group, rows, first, last, G)
                pushed = before - first
                if pushed > 0:
                    places = self.slots[:, i, G, first:before]
                    d_scores = w.d_scores_GltC[..., :pushed].flatten(1, 2).to(block.dtype)
                    kept = w.kept_GltC[..., :pushed].flatten(1, 2).to(block.dtype)
                    places[0].add_(torch.bmm(d_scores.transpose(1, 2), w.q_GRE), alpha=block.scale)
                    places[1].add_(torch.bmm(kept.transpose(1, 2), w.d_out_GRE))
                if positions:
                    self._add_distances(w, group[0], min(s.S, last - first))

    def _add_distances(self, w: Weights, l: int, reach: int) -> None:
        """Add one layer's contribution to positions and spans, of the last ``reach`` distances."""
        block, s = self.block, self.block.sizes
        d_key, d_value = self.positions
        span = self.span_masks[l]
        if d_key is not None or span is not None:
            d_scores_GltS = by_distance(w.d_scores_GltC, reach)
            if d_key is not None:
                rows = d_scores_GltS.reshape(-1, reach).to(block.dtype)
                add_product(d_key[s.S - reach :], rows.t(), w.q_GRE.reshape(-1, s.E), block.scale)
            if span is not None and block.inputs.active[l]:
                by_head_HS = d_scores_GltS.flatten(1, 2).unflatten(0, (-1, s.H)).sum((0, 2))
                width = min(reach, span.shape[1])
                span[:, span.shape[1] - width :] += by_head_HS[:, reach - width :]
        if d_value is not None:
            rows = by_distance(w.kept_GltC, reach).reshape(-1, reach).to(block.dtype)
            add_product(d_value[s.S - reach :], rows.t(), w.d_out_GRE.reshape(-1, s.E))

    def _weights(
        self, tile: Tile, i: int, layers: List[int], rows: Tuple[int, int], first: int, last: int, G: slice
    ) -> Weights:
        """Attention of the steps rows[0] … rows[1] - 1 of some layers over slots first … last - 1 of set i."""
        block, s, inputs = self.block, self.block.sizes, self.block.inputs
        T, l = rows[1] - rows[0], slice(layers[0], layers[-1] + 1)
        streams = slice(G.start // s.H, G.stop // s.H)
        in_record = slice(tile.at + rows[0] - tile.first, tile.at + rows[1] - tile.first)
        in_tile = slice(rows[0] - tile.first, rows[1] - tile.first)
        q, d_out = tile.record.q.whole[in_record, l], tile.work.da.whole[in_tile, l]
        q_GRE, d_out_GRE = (
            x.unflatten(-1, (s.H, s.E)).flatten(2, 3)[:, :, G].permute(2, 1, 0, 3).flatten(1, 2) for x in (q, d_out)
        )
        lse_Glt1, delta_Glt1 = (
            x[:, :, G].permute(2, 1, 0)[..., None] for x in (tile.record.lse[in_record, l], tile.work.delta[in_tile, l])
        )
        newest = s.C + rows[1] - 1  # one after the last slot that a row sees
        seen, width = newest - first, last - first
        reach = min(s.S, seen)  # the largest distance between a row and a slot

        def at_slots(x_tS: Tensor) -> Tensor:
            """Numbers by distance [..., t, reach], at the slots."""
            return by_slot(x_tS, seen)[..., :width]

        def products(vectors_GRE: Tensor, slots_GCE: Tensor, table_SE: Optional[Tensor]) -> Tensor:
            found = torch.bmm(vectors_GRE, slots_GCE[G, first:last].transpose(1, 2)).to(block.wide)
            found = found.unflatten(1, (-1, T))
            if table_SE is not None:
                by_table = (vectors_GRE @ table_SE[s.S - reach :].t()).to(block.wide).unflatten(1, (-1, T))
                found = found + at_slots(by_table)
            return found

        keys, values = block.weights.key_positions_SE, block.weights.value_positions_SE
        scores = products(q_GRE, block.slots.keys_IGCE[i], keys) * block.scale
        device = scores.device
        steps_t1 = torch.arange(T, device=device)[:, None]
        distance_tC = s.C + rows[0] + steps_t1 - torch.arange(first, last, device=device)
        seen_tC = (distance_tC >= 1) & (distance_tC <= s.S)
        visible = seen_tC
        if block.log_mask_LHS is not None:
            log_mask_lHtS = block.log_mask_LHS[l, :, None, s.S - reach :].expand(-1, -1, T, -1)
            log_mask_HltC = at_slots(log_mask_lHtS).transpose(0, 1)
            scores = (scores.unflatten(0, (-1, s.H)) + log_mask_HltC).flatten(0, 1)
            in_span = (log_mask_HltC > NO_SCORE.value).repeat(len(scores) // s.H, 1, 1, 1)
            visible = visible & in_span
        if inputs.reach_TB is not None:
            reach_Bt1 = inputs.reach_TB[rows[0] : rows[1], streams].t()[:, :, None]
            near_BtC = distance_tC <= reach_Bt1
            visible = visible & near_BtC[:, None].expand(-1, s.H, -1, -1).flatten(0, 1)[:, None]
        weights = torch.where(visible, (scores - lse_Glt1).exp(), 0)
        d_weights = products(d_out_GRE, block.slots.values_IGCE[i], values)
        kept = weights
        mask = inputs.dropouts.attention_LTBHS
        if mask is not None:
            keep_ltGS = mask.keep[l, rows[0] : rows[1]].flatten(2, 3)[:, :, G, mask.keep.shape[-1] - reach :]
            keep = at_slots(keep_ltGS.permute(2, 0, 1, 3).to(block.wide)) * mask.scale
            kept, d_weights = weights * keep, d_weights * keep
        d_scores = weights * (d_weights - delta_Glt1)
        return Weights(kept, torch.where(seen_tC, d_scores, 0), q_GRE, d_out_GRE)  # (other slots may be unwritten)

    def cross_weights(self, tile: Tile, l: int) -> Tuple[Tensor, Tensor]:
        """See ``BlockGradients.cross_weights``: computed again."""
        block, s, n = self.block, self.block.sizes, tile.steps
        context, in_record = block.encoder[l], slice(tile.at, tile.at + n)
        q_GTE, d_out_GTE = (
            x.reshape(n, s.G, s.E).transpose(0, 1)
            for x in (tile.record.cross_q.whole[in_record, l], tile.work.dca.whole[:n, l])
        )
        lse_GT1, delta_GT1 = (
            x.t()[..., None] for x in (tile.record.cross_lse[in_record, l], tile.work.cross_delta[:n, l])
        )
        scores = torch.bmm(q_GTE, context.keys_GCE.transpose(1, 2)).to(block.wide) * block.scale
        if context.padding_G1C is not None:
            scores = scores.masked_fill(context.padding_G1C, float("-inf"))
        weights = (scores - lse_GT1).exp()
        d_weights = torch.bmm(d_out_GTE, context.values_GCE.transpose(1, 2)).to(block.wide)
        kept, mask = weights, block.inputs.dropouts.cross_LTBHC
        if mask is not None:
            keep_GTC = tile.mask(mask, l).flatten(1, 2).transpose(0, 1).to(block.wide) * mask.scale
            kept, d_weights = weights * keep_GTC, d_weights * keep_GTC
        d_scores = weights * (d_weights - delta_GT1) * block.scale
        return kept.transpose(0, 1), d_scores.transpose(0, 1).to(block.dtype)
