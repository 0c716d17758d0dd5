"""The Triton loop's backward pass: up to five kernels per layer and step, three more with an encoder, and three for the
memories of the step.

It computes gradients of activations only; each weight's gradient is one product after the steps.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.block import Block
from fb_fairseq.ops.feedback.tile import Tile
from fb_fairseq.ops.feedback.triton import attention, memory, products_backward
from fb_fairseq.ops.feedback.triton.activations import NUMBERS
from fb_fairseq.ops.feedback.triton.forward import BlockKernels
from fb_fairseq.ops.feedback.triton.launches import AttendedSlots, keep_of
from fb_fairseq.ops.layers import Affine

OWN_ROWS = 32  # rows that a program of ``own_slot`` reads at a time


class Above(NamedTuple):
    """The sublayer above, which contributes to the gradient of a sublayer's result through its input.

    Attributes:
        d_normed: the gradient of its input; with pre-norm, of the output of its norm.
        x, norm: its norm's input and weights (pre-norm).
        statistics: mean and 1 / standard deviation of the norm's input [2, B].
    """

    d_normed: Tensor
    x: Tensor
    norm: Affine
    statistics: Tensor


class BackwardKernels:
    """The kernels of a tile's steps backward.

    Attributes:
        d_sums: gradients of the sums of residual connections [3, B, D]: after the feed-forward sublayer, after
            attention to the encoder, and after attention to the memory.
        d_normed: the gradient of what a sublayer reads [B, D] (post-norm).
    """

    def __init__(self, block: Block, kernels: BlockKernels, tile: Tile):
        self.block, self.kernels, self.tile, self.work = block, kernels, tile, tile.work
        s = block.sizes
        self.d_sums, self.d_normed = block.allocator.new(3, s.B, s.D), block.allocator.new(s.B, s.D)

    def run(self, d_out_TBD: Tensor, d_x_TBD: Tensor) -> None:
        """Run the steps, from the last to the first; see ``Loop.backward_tile``."""
        tile = self.tile
        for i in range(tile.steps - 1, -1, -1):
            self._memory(i)
            self._layers(i, d_out_TBD[tile.first + i], d_x_TBD[tile.first + i])
        shares_K = self.kernels.slots.sets[0].mix_KA[:, 0].to(d_x_TBD.dtype)
        d_memory_KTBD = self.work.d_memory_KTBD[:, : tile.steps]
        d_x_TBD[tile.first : tile.last] += torch.einsum("k,ktbd->tbd", shares_K, d_memory_KTBD)
        tile.sums.push_slots(tile)

    def _memory(self, i: int) -> None:
        """Compute the gradient of the memories of the tile's step i: the contributions of later steps of the tile, and
        what later tiles have added up.
        """
        block, s, work, tile = self.block, self.block.sizes, self.work, self.tile
        launcher, t = self.kernels.steps.launcher, tile.first + i
        if t + 1 == s.T:  # no step of the block sees it
            for x in (work.d_kv_ITBZ[:, i], work.d_kv_normed_ITBD[:, i], work.d_memory_KTBD[:, i]):
                x.zero_()
            return
        slots = tile.sums.slots
        d_scores, kept = (x[i + 1 :, :, :, s.S + i :] for x in (work.ds_TLGW, work.p_TLGW))
        launcher.launch(
            memory.own_slot,
            (s.G, s.I, 2),
            d_scores=d_scores,
            kept=kept,
            q=tile.record.q[tile.at + i + 1 :],
            d_out=work.da[i + 1 :],
            d_slots=slots,
            d_kv=work.d_kv_ITBZ[:, i],
            G=s.G,
            later=tile.steps - i - 1,
            slot=s.C + t,
            slots=slots.shape[3],
            side=slots.stride(0),
            scores_row=d_scores.stride(2),
            row=d_scores.stride(1),
            set_stride=work.d_kv_ITBZ.stride(0),
            scale=launcher.scale,
            H=s.H,
            E=s.E,
            L=s.L,
            LAYERS=s.L if s.I == 1 else 1,
            BY=OWN_ROWS,
            BE=launcher.BE,
            num_warps=4,
        )
        norm, key, _ = self.kernels.slots.sets[0].projections
        d_normed = work.d_kv_normed_ITBD[:, i]
        launcher.product(
            products_backward.product_transposed,
            s.D,
            2 * s.X,
            sets=s.I,
            a=work.d_kv_ITBZ[:, i],
            weight=key.weight,
            out=d_normed,
            N=s.D,
            a_set=work.d_kv_ITBZ.stride(0),
            weight_set=0 if len(key.weight) == 1 else key.weight.stride(0),
            out_set=work.d_kv_normed_ITBD.stride(0),
            INNER=2 * s.X,
        )
        launcher.rows(
            memory.memory_backward,
            sets=s.K,
            d_normed=d_normed,
            memory=block.memory_KTBD[:, t],
            norm_weight=None if norm is None else norm.weight,
            d_memory=work.d_memory_KTBD[:, i],
            set_stride=work.d_kv_normed_ITBD.stride(0),
            memory_stride=block.memory_KTBD.stride(0),
            d_memory_stride=work.d_memory_KTBD.stride(0),
            K=s.K,
            SETS=s.I,
            PROJECTIONS=len(key.weight),
        )

    def _layers(self, i: int, d_out: Tensor, d_x: Tensor) -> None:
        """The gradient of the embedding of the tile's step i, through the layers, and what they leave."""
        block, s, work, tile, record = self.block, self.block.sizes, self.work, self.tile, self.tile.record
        t, at, pre = tile.first + i, tile.at + i, block.inputs.options.normalize_before
        masks = block.inputs.dropouts
        d_result, above = d_out, None
        mix_KA = self.kernels.slots.sets[0].mix_KA
        for l in range(s.L - 1, -1, -1):
            layer = block.weights.layers[l]
            # Feed-forward sublayer.
            d_result = self._through_sublayer(
                d_result,
                above,
                i,
                l,
                "ffn",
                mix=mix_KA[:, l + 1 :],
                norm=layer.ffn_norm,
                summed=None if pre else record.ffn_sum[l, at],
                affine=layer.fc2,
                keep=keep_of(masks.ffn_residual_LTBD, l, t),
                d_branch=work.d_ffn[l, i],
                d_norm=work.d_ffn_norm[l, i],
                out=work.d_hidden[l, i],
                d_sum=self.d_sums[0],
                hidden=record.hidden[l, at],
                keep_hidden=keep_of(masks.hidden_LTBF, l, t),
            )
            d_normed = work.d_ffn_norm[l, i] if pre else self.d_normed
            self._through_linear(work.d_hidden[l, i], layer.fc1, d_normed)
            last_x = record.crossed_x if block.encoder else record.attended_x
            above = Above(d_normed, last_x[l, at], layer.ffn_norm, record.statistics["ffn"][:, l, at])
            if block.encoder:
                d_result, above = self._cross_attention(d_result, above, i, l)
            # Attention to the memory.
            d_result = self._through_sublayer(
                d_result,
                above,
                i,
                l,
                "attn",
                norm=layer.attn_norm,
                summed=None if pre else record.attention_sum[l, at],
                affine=layer.out,
                keep=keep_of(masks.attention_residual_LTBD, l, t),
                d_branch=work.d_attention[l, i],
                d_norm=work.d_attn_norm[l, i],
                out=work.da[i, l],
                d_sum=self.d_sums[2] if l else d_x,
            )
            d_normed = work.d_attn_norm[l, i] if pre else self.d_normed
            attended, end = self.kernels.slots.of_memory(l, t), s.S + i
            self._through_attention(
                attended,
                d_scores=work.ds_TLGW[i, l, :, end - attended.n : end],
                kept=work.p_TLGW[i, l, :, end - attended.n : end],
                q=record.q[at, l],
                a=record.a[at, l],
                lse=record.lse[at, l],
                d_a=work.da[i, l],
                d_q=work.dq[i, l],
                query=None if l == 0 else layer.query,
                d_normed=d_normed,
            )
            above = Above(d_normed, record.x[l, at], layer.attn_norm, record.statistics["attn"][:, l, at])

    def _cross_attention(self, d_result: Tensor, above: Above, i: int, l: int) -> tuple[Tensor, Above]:
        """The gradient through a layer's attention to the encoder."""
        block, work, tile, record = self.block, self.work, self.tile, self.tile.record
        t, at, pre = tile.first + i, tile.at + i, block.inputs.options.normalize_before
        cross = block.weights.layers[l].cross
        d_result = self._through_sublayer(
            d_result,
            above,
            i,
            l,
            "cross",
            norm=cross.attn_norm,
            summed=None if pre else record.cross_sum[l, at],
            affine=cross.out,
            keep=keep_of(block.inputs.dropouts.cross_residual_LTBD, l, t),
            d_branch=work.d_crossed[l, i],
            d_norm=work.d_cross_norm[l, i],
            out=work.dca[i, l],
            d_sum=self.d_sums[1],
        )
        d_normed = work.d_cross_norm[l, i] if pre else self.d_normed
        self._through_attention(
            self.kernels.slots.of_encoder(l, t),
            d_scores=work.dcs[i, l],
            kept=work.cross_p[i, l],
            q=record.cross_q[at, l],
            a=record.cross_a[at, l],
            lse=record.cross_lse[at, l],
            d_a=work.dca[i, l],
            d_q=work.dcq[i, l],
            query=cross.query,
            d_normed=d_normed,
        )
        return d_result, Above(
            d_normed, record.attended_x[l, at], cross.attn_norm, record.statistics["cross"][:, l, at]
        )

    def _through_sublayer(
        self,
        d_result: Tensor,
        above: Above | None,
        i: int,
        l: int,
        kind: str,
        *,
        norm: Affine,
        summed: Tensor | None,
        affine: Affine,
        keep: tuple[Tensor | None, float],
        d_branch: Tensor,
        d_norm: Tensor,
        out: Tensor,
        d_sum: Tensor,
        mix: Tensor | None = None,
        hidden: Tensor | None = None,
        keep_hidden: tuple[Tensor | None, float] = (None, 1.0),
    ) -> Tensor:
        """Propagate the gradient of a sublayer's result to the input of its last linear map; see ``back_product``.

        Args:
            d_result: the gradient of the sublayer's result through the residual connection above it.
            above: the other share of this gradient; None at the top.
            i, l: the step in the tile, and the layer.
            kind: of the sublayer, in the record's statistics: "attn", "cross" or "ffn".
            norm, summed: the sublayer's norm, and the input of it (post-norm).
            affine: its last linear map.
            keep: the dropout mask on its output, and the scale of what is kept.
            d_branch, d_norm: written: the gradients of the map's output, and (post-norm) of the norm's.
            out: written: the gradient of the map's input.
            d_sum: written: the gradient of the sum of the residual connection. (Kernels read ``d_result`` while they
                write it: it is another buffer than that of the sublayer above.)
            mix: the shares of the layer's output in the memories, in its first column (feed-forward sublayer).
            hidden, keep_hidden: activations before the map and their dropout (feed-forward sublayer).

        Returns:
            ``d_sum``.
        """
        block, s, work = self.block, self.block.sizes, self.work
        pre = block.inputs.options.normalize_before
        x = norm_weight = mean = rstd = None
        if pre and above is not None:
            x, norm_weight = above.x, above.norm.weight
            mean, rstd = above.statistics
        elif not pre:
            x, norm_weight = summed, norm.weight
            mean, rstd = self.tile.record.statistics[kind][:, l, self.tile.at + i]
        N = out.shape[-1]
        self.kernels.steps.launcher.product(
            products_backward.back_product,
            N,
            s.D,
            base=d_result,
            d_normed=None if above is None else above.d_normed,
            x=x,
            norm_weight=norm_weight,
            mean_in=mean,
            rstd_in=rstd,
            d_memory=None if mix is None else work.d_memory_KTBD[:, i],
            mix=mix,
            weight=affine.weight,
            hidden=hidden,
            keep_residual=keep[0],
            keep_hidden=keep_hidden[0],
            d_sum=d_sum,
            d_norm_out=None if pre else d_norm,
            d_branch=d_branch,
            out=out,
            N=N,
            memory_stride=work.d_memory_KTBD.stride(0),
            mix_stride=0 if mix is None else mix.stride(0),
            scale_residual=keep[1],
            scale_hidden=keep_hidden[1],
            PRE=pre,
            K=s.K,
            D=s.D,
            KIND=NUMBERS[self.kernels.steps.activation],
        )
        return d_sum

    def _through_linear(self, a: Tensor, affine: Affine, out: Tensor) -> None:
        """Propagate the gradient ``a`` of a linear map's result to its input, ``out``."""
        D, inner = self.block.sizes.D, len(affine.weight)
        self.kernels.steps.launcher.product(
            products_backward.product_transposed,
            D,
            inner,
            a=a,
            weight=affine.weight,
            out=out,
            N=D,
            a_set=0,
            weight_set=0,
            out_set=0,
            INNER=inner,
        )

    def _through_attention(
        self,
        attended: AttendedSlots,
        *,
        d_scores: Tensor,
        kept: Tensor,
        q: Tensor,
        a: Tensor,
        lse: Tensor,
        d_a: Tensor,
        d_q: Tensor,
        query: Affine | None,
        d_normed: Tensor,
    ) -> None:
        """Propagate the gradient of an attention's result to its queries, and through ``query`` to the input of that.

        Args:
            attended: the n slots.
            d_scores, kept: written: the gradients of scores and the weights after dropout [G, n].
            q, a, lse: queries, result, and logarithms of the sums of exponentials, from the forward pass.
            d_a: the gradient of the result.
            d_q: written: that of the queries.
            query: the projection of queries. None in the lowest layer: its queries depend on embeddings alone, and
                their gradient is computed for all steps at once.
            d_normed: written: the gradient of the projection's input.
        """
        parts = self.kernels.steps.parts
        self.kernels.steps.launcher.attend(
            attention.attend_backward,
            attended,
            q=q,
            d_out=d_a,
            out=a,
            lse=lse,
            d_q=d_q,
            parts=parts.parts,
            arrived=parts.arrived,
            d_scores=d_scores,
            kept_out=kept,
            scores_row=d_scores.stride(0),
        )
        if query is not None:
            self._through_linear(d_q, query, d_normed)
