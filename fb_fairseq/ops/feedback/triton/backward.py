"""The Triton loop's backward pass: five kernels per layer and step, and three for what the step leaves.

As in the torch loop, it computes gradients of activations only; each weight's gradient is one product after the steps.
Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.torch.backward import BlockBackward
from fb_fairseq.ops.feedback.torch.tile import Tile, Workspace
from fb_fairseq.ops.feedback.triton import attention, memory, products
from fb_fairseq.ops.feedback.triton.forward import TritonBlock, TritonRecord
from fb_fairseq.ops.feedback.triton.gradients import TritonGradients
from fb_fairseq.ops.feedback.triton.launches import Source, contiguous, keep_of
from fb_fairseq.ops.layers import Affine

OWN_ROWS = 32  # rows that a program of ``own_slot`` reads at a time
ALIGNED = 16  # numbers; products on tensor cores need aligned rows


class TritonWorkspace(Workspace):
    """What steps leave for the products after them.

    Attributes:
        cross_p: weights of attention to the encoder after dropout [T, L, G, C].
        sums: gradients of the sums of residual connections [3, B, D]: after the feed-forward sublayer, after attention
            to the encoder, and after attention to the memory.
        normed: the gradient of what a sublayer reads [B, D] (post-norm).
    """

    def __init__(self, block: TritonBlock, steps: int):
        super().__init__(block, steps)
        s = block.sizes
        self.sums, self.normed = block.new(3, s.B, s.D), block.new(s.B, s.D)
        if block.encoder:
            self.cross_p = block.new_half(*self.dcs.whole.shape)

    def new_by_slot(self, block: TritonBlock, steps: int) -> Tensor:
        """See ``Workspace.new_by_slot``: head by head in memory, as the products after the steps read it."""
        s = block.sizes
        width = -(-(s.S + steps - 1) // ALIGNED) * ALIGNED
        return block.new_half(s.G, steps, s.L, width).zero_().permute(1, 2, 0, 3)


class Above(NamedTuple):
    """What the sublayer above adds to the gradient of its input.

    Attributes:
        d_normed: the gradient of what it reads: of its norm's result with pre-norm.
        x, norm, statistics: the norm's input, weights and statistics (pre-norm).
    """

    d_normed: Tensor
    x: Tensor
    norm: Affine
    statistics: Tensor


class TritonBackward(BlockBackward):
    """One backward pass over a block."""

    block: TritonBlock
    record: Optional[TritonRecord]
    record_class, workspace_class, sums_class = TritonRecord, TritonWorkspace, TritonGradients

    def __init__(self, block: TritonBlock, record: Optional[TritonRecord]):
        super().__init__(block, record)
        weights, active = block.weights, block.inputs.active
        # Layers that do not run pass their inputs on: what memories take of them is taken of the one below.
        self.active = [l for l in range(block.sizes.L) if active[l]]
        ends = [l + 1 for l in self.active] + [block.sizes.L + 1]
        starts = [0] + ends[:-1]
        mix_KA = weights.mix_KA.to(block.wide)
        self.mix = torch.stack([mix_KA[:, a:b].sum(1) for a, b in zip(starts, ends)], 1).contiguous()

    def run(self, d_out_TBD: Tensor) -> Tensor:
        """See ``BlockBackward.run``."""
        return super().run(d_out_TBD.contiguous())

    def _recompute(self, record: TritonRecord, first: int, last: int) -> None:
        """See ``BlockBackward._recompute``."""
        self.block.run_again(record, first, last)

    def _run_tile(self, tile: Tile, d_out_TBD: Tensor, d_x_TBD: Tensor) -> None:
        """See ``BlockBackward._run_tile``."""
        self._record = tile.record
        for i in range(tile.steps - 1, -1, -1):
            self._memory(tile, i)
            self._layers(tile, i, d_out_TBD[tile.first + i], d_x_TBD[tile.first + i])
        shares_K, d_memory_KTBD = self.mix[:, 0].to(d_x_TBD.dtype), self.work.d_memory_KTBD[:, : tile.steps]
        d_x_TBD[tile.first : tile.last] += torch.einsum("k,ktbd->tbd", shares_K, d_memory_KTBD)
        self.sums.push_slots(tile)

    def _memory(self, tile: Tile, i: int) -> None:
        """The gradient of the memories of the tile's step i, from later steps, and from what later tiles have left."""
        block, s, work = self.block, self.block.sizes, self.work
        launcher, t = block.launcher, tile.first + i
        if t + 1 == s.T:  # no step of the block sees it
            for x in (work.d_kv_ITBZ[:, i], work.d_kv_normed_ITBD[:, i], work.d_memory_KTBD[:, i]):
                x.zero_()
            return
        slots = self.sums.slots
        d_scores, kept = (x[i + 1 :, :, :, s.S + i :] for x in (work.ds_TLGW, work.p_TLGW))
        launcher.launch(
            memory.own_slot, (s.G, s.I, 2), d_scores, kept, tile.record.q.whole[tile.at + i + 1 :],
            work.da.whole[i + 1 :], slots, work.d_kv_ITBZ[:, i], s.G, tile.steps - i - 1, s.C + t, slots.shape[3],
            slots.stride(0), d_scores.stride(2), d_scores.stride(1), work.d_kv_ITBZ.stride(0), launcher.scale, H=s.H,
            E=s.E, L=s.L, LAYERS=s.L if s.I == 1 else 1, BY=OWN_ROWS, BE=launcher.BE, num_warps=4,
        )  # fmt: skip
        sources = block.weights.sources
        shared = len({source.projection for source in sources}) == 1
        d_normed = work.d_kv_normed_ITBD[:, i]
        launcher.product(
            products.product_transposed, s.D, 2 * s.X, work.d_kv_ITBZ[:, i], block.kv_weight, d_normed, s.B, s.D,
            work.d_kv_ITBZ.stride(0), 0 if shared else block.kv_weight.stride(0), work.d_kv_normed_ITBD.stride(0),
            sets=s.I, K=2 * s.X,
        )  # fmt: skip
        launcher.rows(
            memory.memory_backward, d_normed, block.memory_KTBD[:, t], block.kv_norm[0], work.d_memory_KTBD[:, i], s.B,
            work.d_kv_normed_ITBD.stride(0), block.memory_KTBD.stride(0), work.d_memory_KTBD.stride(0), sets=s.K, K=s.K,
            SETS=s.I, PROJECTIONS=len(block.kv_weight), D=s.D,
        )  # fmt: skip

    def _layers(self, tile: Tile, i: int, d_out: Tensor, d_x: Tensor) -> None:
        """The gradient of the embedding of the tile's step i, through the layers, and what they leave."""
        block, s, work, record = self.block, self.block.sizes, self.work, tile.record
        t, at, pre = tile.first + i, tile.at + i, block.inputs.options.normalize_before
        masks = block.inputs.dropouts
        base, above = d_out, None
        if not self.active:
            d_x.copy_(d_out)
        for number in range(len(self.active) - 1, -1, -1):
            l = self.active[number]
            layer = block.weights.layers[l]
            # Feed-forward sublayer.
            mix = self.mix[:, number + 1 :], self.mix.stride(0)
            keep = keep_of(masks.ffn_residual_LTBD, l, t)
            base = self._back(
                base, above, mix, i, l, at, "ffn", layer.ffn_norm, None if pre else record.ffn_sum.whole[l, at],
                layer.fc2, keep, work.d_ffn.whole[l, i], work.d_ffn_norm.whole[l, i], work.d_hidden.whole[l, i],
                work.sums[0], record.hidden.whole[l, at], keep_of(masks.hidden_LTBF, l, t),
            )  # fmt: skip
            d_normed = work.d_ffn_norm.whole[l, i] if pre else work.normed
            self._through(work.d_hidden.whole[l, i], layer.fc1, d_normed)
            last_x = record.crossed_x if block.encoder else record.attended_x
            above = Above(d_normed, last_x.whole[l, at], layer.ffn_norm, record.statistics["ffn"][:, l, at])
            if block.encoder:
                base, above = self._cross_attention(base, above, tile, i, l)
            # Attention to the memory.
            keep = keep_of(masks.attention_residual_LTBD, l, t)
            to = work.sums[2] if number else d_x
            base = self._back(
                base, above, None, i, l, at, "attn", layer.attn_norm,
                None if pre else record.attention_sum.whole[l, at], layer.out, keep, work.d_attention.whole[l, i],
                work.d_attn_norm.whole[l, i], work.da.whole[i, l], to,
            )  # fmt: skip
            q, a, lse = record.q.whole[at, l], record.a.whole[at, l], record.lse[at, l]
            d_normed = work.d_attn_norm.whole[l, i] if pre else work.normed
            source, end = block.memory_source(l, t), s.S + i
            left = [x[i, l, :, end - source.n : end] for x in (work.ds_TLGW, work.p_TLGW)]
            self._attention(
                q, a, lse, source, work.da.whole[i, l], work.dq.whole[i, l], left, None if l == 0 else layer.query,
                d_normed,
            )  # fmt: skip
            above = Above(d_normed, record.x.whole[l, at], layer.attn_norm, record.statistics["attn"][:, l, at])
        if self.active and self.active[0] > 0:  # else the queries' part follows, for all steps at once
            d_x += tile.attn_norm[self.active[0]].step_backward(above.d_normed, i) if pre else above.d_normed

    def _cross_attention(self, base: Tensor, above: Above, tile: Tile, i: int, l: int) -> Tuple[Tensor, Above]:
        """The gradient through a layer's attention to the encoder."""
        block, work, record = self.block, self.work, tile.record
        t, at, pre = tile.first + i, tile.at + i, block.inputs.options.normalize_before
        cross, keep = block.weights.layers[l].cross, keep_of(block.inputs.dropouts.cross_residual_LTBD, l, t)
        base = self._back(
            base, above, None, i, l, at, "cross", cross.attn_norm, None if pre else record.cross_sum.whole[l, at],
            cross.out, keep, work.d_crossed.whole[l, i], work.d_cross_norm.whole[l, i], work.dca.whole[i, l],
            work.sums[1],
        )  # fmt: skip
        q, a, lse = record.cross_q.whole[at, l], record.cross_a.whole[at, l], record.cross_lse[at, l]
        d_normed = work.d_cross_norm.whole[l, i] if pre else work.normed
        self._attention(
            q, a, lse, block.encoder_source(l, t), work.dca.whole[i, l], work.dcq.whole[i, l],
            [work.dcs.whole[i, l], work.cross_p[i, l]], cross.query, d_normed,
        )  # fmt: skip
        return base, Above(
            d_normed, record.attended_x.whole[l, at], cross.attn_norm, record.statistics["cross"][:, l, at]
        )

    def _back(
        self,
        base: Tensor,
        above: Optional[Above],
        mix: Optional[Tuple[Tensor, int]],
        i: int,
        l: int,
        at: int,
        kind: str,
        norm: Affine,
        summed: Optional[Tensor],
        affine: Affine,
        keep: Tuple[Optional[Tensor], float],
        d_branch: Tensor,
        d_norm: Tensor,
        out: Tensor,
        d_sum: Tensor,
        hidden: Optional[Tensor] = None,
        keep_hidden: Tuple[Optional[Tensor], float] = (None, 1.0),
    ) -> Tensor:
        """From the gradient of a sublayer's result to that of its last linear map's input; see ``back_product``.

        Args:
            norm, summed: the sublayer's own norm and its input (post-norm).
        """
        block, s, work = self.block, self.block.sizes, self.work
        pre = block.inputs.options.normalize_before
        d_normed = None if above is None else above.d_normed
        x = weight_norm = mean = rstd = None
        if pre and above is not None:
            x, weight_norm, (mean, rstd) = above.x, contiguous(above.norm)[0], above.statistics
        elif not pre:
            x, weight_norm = summed, contiguous(norm)[0]
            mean, rstd = self._record.statistics[kind][:, l, at]
        d_memory, shares, stride = None, None, 0
        if mix is not None:
            d_memory, (shares, stride) = work.d_memory_KTBD[:, i], mix
        N = out.shape[-1]
        block.launcher.product(
            products.back_product, N, s.D, base, d_normed, x, weight_norm, mean, rstd, d_memory, shares,
            contiguous(affine)[0], hidden, keep[0], keep_hidden[0], d_sum, None if pre else d_norm, d_branch, out, s.B,
            N, work.d_memory_KTBD.stride(0), stride, keep[1], keep_hidden[1], PRE=pre, K=s.K, D=s.D,
            KIND=block.kind,
        )  # fmt: skip
        return d_sum

    def _through(self, a: Tensor, affine: Affine, out: Tensor) -> None:
        """The gradient of a linear map's input, from that of its result."""
        s, weight = self.block.sizes, contiguous(affine)[0]
        inner = len(weight)
        self.block.launcher.product(products.product_transposed, s.D, inner, a, weight, out, s.B, s.D, 0, 0, 0, K=inner)

    def _attention(
        self,
        q: Tensor,
        a: Tensor,
        lse: Tensor,
        source: Source,
        d_a: Tensor,
        d_q: Tensor,
        left: List[Tensor],
        query: Optional[Affine],
        d_normed: Tensor,
    ) -> None:
        """The gradients of queries and, through their projection, of what they are projected from.

        Args:
            left: where the gradients of scores and the weights after dropout are left [G, n].
            query: the projection; None: its gradient follows for all steps at once.
        """
        block = self.block
        after = d_q, block.parts, block.arrived, *left, left[0].stride(0)
        block.launcher.attend(attention.attend_backward, source, (q, d_a, a, lse), after)
        if query is not None:
            self._through(d_q, query, d_normed)
