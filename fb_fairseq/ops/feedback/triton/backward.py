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

OWN_ROWS = 32  # pairs of a step and a layer that a program of ``own_slot`` reads at a time


class Sublayer(NamedTuple):
    """A sublayer at a step, as far as the gradients of its own result and of that of the sublayer below depend on it.

    Attributes:
        norm: its norm's weights.
        x: the norm's input [B, D]: with pre-norm the sublayer's, with post-norm the sum of the residual connection.
        statistics: mean and 1 / standard deviation of ``x`` [2, B].
        d_norm: the gradient of the norm's result.
        d_input: the gradient of what its first linear map reads; with pre-norm the same as ``d_norm``.
    """

    norm: Affine
    x: Tensor
    statistics: Tensor
    d_norm: Tensor
    d_input: Tensor


class BackwardKernels:
    """The kernels of a tile's steps backward.

    A method for a sublayer takes the tile's step i, the layer l, the gradient of the sublayer's result through the
    residual connection above it, and the sublayer above, which contributes to this gradient, too (None at the top). It
    returns the same two for the sublayer below.

    Attributes:
        d_sums: gradients of the sums of residual connections [3, B, D]: after the feed-forward sublayer, after
            attention to the encoder, and after attention to the memory. (Kernels read one while they write another.)
        d_input: the gradient of what a sublayer reads [B, D] (post-norm).
    """

    def __init__(self, block: Block, kernels: BlockKernels, tile: Tile):
        self.block, self.kernels, self.tile, self.work, self.record = block, kernels, tile, tile.work, tile.record
        self.launcher, self.pre_norm = kernels.steps.launcher, block.inputs.options.normalize_before
        self.mix_KA = kernels.slots.sets[0].mix_KA
        s = block.sizes
        self.d_sums, self.d_input = block.allocator.new(3, s.B, s.D), block.allocator.new(s.B, s.D)

    def run(self, d_out_TBD: Tensor, d_x_TBD: Tensor) -> None:
        """Run the steps, from the last to the first; see ``Loop.backward_tile``."""
        tile = self.tile
        for i in range(tile.steps - 1, -1, -1):
            self._memory(i)
            d_result, above = d_out_TBD[tile.first + i], None
            for l in range(self.block.sizes.L - 1, -1, -1):
                d_result, above = self._feed_forward(i, l, d_result, above)
                if self.block.encoder:
                    d_result, above = self._cross_attention(i, l, d_result, above)
                d_sum = self.d_sums[2] if l else d_x_TBD[tile.first + i]
                d_result, above = self._attention(i, l, d_result, above, d_sum)
        shares_K = self.mix_KA[:, 0].to(d_x_TBD.dtype)
        d_memory_KTBD = self.work.d_memory_KTBD[:, : tile.steps]
        d_x_TBD[tile.first : tile.last] += torch.einsum("k,ktbd->tbd", shares_K, d_memory_KTBD)
        tile.sums.push_slots(tile)

    def _memory(self, i: int) -> None:
        """Compute the gradient of the memories of the tile's step i: the contributions of later steps of the tile, and
        what later tiles have added up.
        """
        block, s, work, tile = self.block, self.block.sizes, self.work, self.tile
        launcher, t = self.launcher, tile.first + i
        if t + 1 == s.T:  # no step of the block sees it
            for x in (work.d_kv_ITBZ[:, i], work.d_kv_normed_ITBD[:, i], work.d_memory_KTBD[:, i]):
                x.zero_()
            return
        slots = tile.sums.slots
        d_scores, kept = (x[i + 1 :, :, :, s.S + i :] for x in (work.ds_TLGW, work.p_TLGW))
        launcher.launch(
            attention.own_slot,
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

    def _feed_forward(self, i: int, l: int, d_result: Tensor, above: Sublayer | None) -> tuple[Tensor, Sublayer]:
        """The gradient through a layer's feed-forward sublayer."""
        block, work, record, t, at = self.block, self.work, self.record, self.tile.first + i, self.tile.at + i
        layer, masks = block.weights.layers[l], block.inputs.dropouts
        x = record.crossed_x if block.encoder else record.attended_x
        own = self._sublayer(i, l, "ffn", layer.ffn_norm, x, record.ffn_sum, work.d_ffn_norm)
        self._through_last_map(
            i,
            d_result,
            above,
            own,
            affine=layer.fc2,
            keep=keep_of(masks.ffn_residual_LTBD, l, t),
            d_branch=work.d_ffn[l, i],
            out=work.d_hidden[l, i],
            d_sum=self.d_sums[0],
            mix=self.mix_KA[:, l + 1 :],
            hidden=record.hidden[l, at],
            keep_hidden=keep_of(masks.hidden_LTBF, l, t),
        )
        self._through_linear(work.d_hidden[l, i], layer.fc1, own.d_input)
        return self.d_sums[0], own

    def _cross_attention(self, i: int, l: int, d_result: Tensor, above: Sublayer) -> tuple[Tensor, Sublayer]:
        """The gradient through a layer's attention to the encoder."""
        block, work, record, t, at = self.block, self.work, self.record, self.tile.first + i, self.tile.at + i
        cross = block.weights.layers[l].cross
        own = self._sublayer(i, l, "cross", cross.attn_norm, record.attended_x, record.cross_sum, work.d_cross_norm)
        self._through_last_map(
            i,
            d_result,
            above,
            own,
            affine=cross.out,
            keep=keep_of(block.inputs.dropouts.cross_residual_LTBD, l, t),
            d_branch=work.d_crossed[l, i],
            out=work.dca[i, l],
            d_sum=self.d_sums[1],
        )
        self._through_attention(
            self.kernels.slots.of_encoder(l, t),
            d_scores=work.dcs[i, l],
            kept=work.cross_p[i, l],
            q=record.cross_q[at, l],
            a=record.cross_a[at, l],
            lse=record.cross_lse[at, l],
            d_a=work.dca[i, l],
            d_q=work.dcq[i, l],
        )
        self._through_linear(work.dcq[i, l], cross.query, own.d_input)
        return self.d_sums[1], own

    def _attention(self, i: int, l: int, d_result: Tensor, above: Sublayer, d_sum: Tensor) -> tuple[Tensor, Sublayer]:
        """The gradient through a layer's attention to the memory; that of its input through the residual connection
        goes to ``d_sum``.
        """
        block, work, record, t, at = self.block, self.work, self.record, self.tile.first + i, self.tile.at + i
        layer = block.weights.layers[l]
        own = self._sublayer(i, l, "attn", layer.attn_norm, record.x, record.attention_sum, work.d_attn_norm)
        self._through_last_map(
            i,
            d_result,
            above,
            own,
            affine=layer.out,
            keep=keep_of(block.inputs.dropouts.attention_residual_LTBD, l, t),
            d_branch=work.d_attention[l, i],
            out=work.da[i, l],
            d_sum=d_sum,
        )
        attended, end = self.kernels.slots.of_memory(l, t), block.sizes.S + i
        self._through_attention(
            attended,
            d_scores=work.ds_TLGW[i, l, :, end - attended.n : end],
            kept=work.p_TLGW[i, l, :, end - attended.n : end],
            q=record.q[at, l],
            a=record.a[at, l],
            lse=record.lse[at, l],
            d_a=work.da[i, l],
            d_q=work.dq[i, l],
        )
        if l > 0:  # layer 1's queries depend on embeddings alone; their gradient is computed for all steps at once
            self._through_linear(work.dq[i, l], layer.query, own.d_input)
        return d_sum, own

    def _sublayer(
        self, i: int, l: int, kind: str, norm: Affine, x: Tensor, sums: Tensor | None, d_norm: Tensor
    ) -> Sublayer:
        """A sublayer at the tile's step i.

        Args:
            kind: its key in the record's statistics: "attn", "cross" or "ffn".
            x, sums: the record's inputs, and (post-norm) sums of residual connections, of all layers and steps.
            d_norm: the workspace's gradients of norms, of all layers and steps.
        """
        at, d = self.tile.at + i, d_norm[l, i]
        statistics = self.record.statistics[kind][:, l, at]
        if self.pre_norm:
            return Sublayer(norm, x[l, at], statistics, d, d)
        return Sublayer(norm, sums[l, at], statistics, d, self.d_input)

    def _through_last_map(
        self,
        i: int,
        d_result: Tensor,
        above: Sublayer | None,
        own: Sublayer,
        *,
        affine: Affine,
        keep: tuple[Tensor | None, float],
        d_branch: Tensor,
        out: Tensor,
        d_sum: Tensor,
        mix: Tensor | None = None,
        hidden: Tensor | None = None,
        keep_hidden: tuple[Tensor | None, float] = (None, 1.0),
    ) -> None:
        """Propagate the gradient of a sublayer's result to the input of its last linear map; see ``back_product``.

        Args:
            i, d_result, above: see the class.
            own: the sublayer; its ``d_norm`` is written with post-norm.
            affine: its last linear map.
            keep: the dropout mask on its output, and the scale of what is kept.
            d_branch: written: the gradient of the map's output.
            out: written: the gradient of the map's input.
            d_sum: written: the gradient of the sum of the residual connection; another buffer than ``d_result``.
            mix: the shares of the layer's output in the memories, in its first column (feed-forward sublayer).
            hidden, keep_hidden: activations before the map and their dropout (feed-forward sublayer).
        """
        s, work, pre = self.block.sizes, self.work, self.pre_norm
        normed = above if pre else own  # through whose norm the gradient goes
        x = norm_weight = mean = rstd = None
        if normed is not None:
            x, norm_weight = normed.x, normed.norm.weight
            mean, rstd = normed.statistics
        N = out.shape[-1]
        self.launcher.product(
            products_backward.back_product,
            N,
            s.D,
            base=d_result,
            d_normed=None if above is None else above.d_input,
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
            d_norm_out=None if pre else own.d_norm,
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

    def _through_linear(self, a: Tensor, affine: Affine, out: Tensor) -> None:
        """Propagate the gradient ``a`` of a linear map's result to its input, ``out``."""
        D, inner = self.block.sizes.D, len(affine.weight)
        self.launcher.product(
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
    ) -> None:
        """Propagate the gradient of an attention's result to its queries.

        Args:
            attended: the n slots.
            d_scores, kept: written: the gradients of scores and the weights after dropout [G, n].
            q, a, lse: queries, result, and logarithms of the sums of exponentials, from the forward pass.
            d_a: the gradient of the result.
            d_q: written: that of the queries.
        """
        parts = self.kernels.steps.parts
        self.launcher.attend(
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
