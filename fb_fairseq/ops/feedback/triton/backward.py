"""The Triton loop's backward pass: up to five kernels per layer and step, three more with an encoder, and three for the
memories of the step.

It computes gradients of activations only; each weight's gradient is one product after the steps.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.block import Block
from fb_fairseq.ops.feedback.tile import Tile
from fb_fairseq.ops.feedback.triton import attention_backward, products_backward
from fb_fairseq.ops.feedback.triton.activations import NUMBERS
from fb_fairseq.ops.feedback.triton.forward import BlockKernels
from fb_fairseq.ops.feedback.triton.launches import AttendedSlots, keep_of
from fb_fairseq.ops.feedback.triton.memories_backward import back_memories
from fb_fairseq.ops.layers import Affine


class Sublayer(NamedTuple):
    """A sublayer at a step, as far as the gradients of its own result and of that of the sublayer below depend on it.

    The gradient of a sublayer's result is the sum of

    - the ``d_sum`` of the sublayer above, through its residual connection,
    - what goes through the sublayer above itself: with pre-norm ``norm'(d_input)``, with post-norm its ``d_input``,
    - of a layer's output, the gradients of the step's memories, each times its share.

    Attributes:
        d_sum: the gradient of the sum of the residual connection. Above the stack that of its output, and all other
            fields are None.
        norm: its norm's weights.
        x: the norm's input [B, D]: with pre-norm the sublayer's, with post-norm the sum of the residual connection.
        statistics: mean and 1 / standard deviation of ``x`` [2, B].
        d_norm: the gradient of the norm's result.
        d_input: the gradient of what its first linear map reads; with pre-norm the same as ``d_norm``.
    """

    d_sum: Tensor
    norm: Affine | None = None
    x: Tensor | None = None
    statistics: Tensor | None = None
    d_norm: Tensor | None = None
    d_input: Tensor | None = None


class BackwardKernels:
    """The kernels of a tile's steps backward.

    A method for a sublayer takes the tile's step i, the layer l, and the sublayer above, whose gradients are there. It
    returns its own sublayer with its gradients, for the one below.

    Attributes:
        d_after_ffn, d_after_cross, d_after_attention: gradients of the sums of residual connections after the
            feed-forward sublayer, after attention to the encoder, and after attention to the memory [B, D]. (Kernels
            read one while they write another.)
        d_input: the gradient of what a sublayer reads [B, D] (post-norm).
    """

    def __init__(self, block: Block, kernels: BlockKernels, tile: Tile):
        self.block = block
        self.kernels = kernels
        self.tile = tile
        self.work = tile.work
        self.record = tile.record
        self.launcher = kernels.steps.launcher
        self.pre_norm = block.inputs.options.normalize_before
        self.mix_KA = kernels.slots.sets[0].mix_KA  # of all sets
        s = block.sizes
        self.d_after_ffn, self.d_after_cross, self.d_after_attention = block.allocator.new(3, s.B, s.D)
        self.d_input = block.allocator.new(s.B, s.D)

    def run(self, d_out_TBD: Tensor, d_x_TBD: Tensor) -> None:
        """Run the steps, from the last to the first; see ``Loop.backward_tile``."""
        tile = self.tile
        for i in range(tile.steps - 1, -1, -1):
            back_memories(self.kernels, tile, i)
            above = Sublayer(d_sum=d_out_TBD[tile.first + i])
            for l in range(self.block.sizes.L - 1, -1, -1):
                above = self._feed_forward(i, l, above)
                if self.block.encoder:
                    above = self._cross_attention(i, l, above)
                d_sum = self.d_after_attention if l else d_x_TBD[tile.first + i]
                above = self._attention(i, l, above, d_sum)
        shares_K = self.mix_KA[:, 0].to(d_x_TBD.dtype)
        d_memory_KTBD = self.work.d_memory_KTBD[:, : tile.steps]
        d_x_TBD[tile.first : tile.last] += torch.einsum("k,ktbd->tbd", shares_K, d_memory_KTBD)
        tile.sums.push_slots(tile)

    def _feed_forward(self, i: int, l: int, above: Sublayer) -> Sublayer:
        """The gradients of a layer's feed-forward sublayer."""
        block, work, record = self.block, self.work, self.record
        t, at = self.tile.first + i, self.tile.at + i
        layer, masks = block.weights.layers[l], block.inputs.dropouts
        own = self._sublayer(
            i,
            l,
            "ffn",
            norm=layer.ffn_norm,
            x=record.crossed_x if block.encoder else record.attended_x,
            sums=record.ffn_sum,
            d_norm=work.d_ffn_norm,
            d_sum=self.d_after_ffn,
        )
        self._through_last_map(
            i,
            above,
            own,
            affine=layer.fc2,
            keep=keep_of(masks.ffn_residual_LTBD, l, t),
            d_branch=work.d_ffn[l, i],
            out=work.d_hidden[l, i],
            mix=self.mix_KA[:, l + 1 :],
            hidden=record.hidden[l, at],
            keep_hidden=keep_of(masks.hidden_LTBF, l, t),
        )
        self._through_linear(work.d_hidden[l, i], layer.fc1, own.d_input)
        return own

    def _cross_attention(self, i: int, l: int, above: Sublayer) -> Sublayer:
        """The gradients of a layer's attention to the encoder."""
        block, work, record = self.block, self.work, self.record
        t, at = self.tile.first + i, self.tile.at + i
        cross = block.weights.layers[l].cross
        own = self._sublayer(
            i,
            l,
            "cross",
            norm=cross.attn_norm,
            x=record.attended_x,
            sums=record.cross_sum,
            d_norm=work.d_cross_norm,
            d_sum=self.d_after_cross,
        )
        self._through_last_map(
            i,
            above,
            own,
            affine=cross.out,
            keep=keep_of(block.inputs.dropouts.cross_residual_LTBD, l, t),
            d_branch=work.d_crossed[l, i],
            out=work.dca[i, l],
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
        return own

    def _attention(self, i: int, l: int, above: Sublayer, d_sum: Tensor) -> Sublayer:
        """The gradients of a layer's attention to the memory; ``d_sum`` is where that of its sum belongs."""
        block, work, record = self.block, self.work, self.record
        t, at = self.tile.first + i, self.tile.at + i
        layer = block.weights.layers[l]
        own = self._sublayer(
            i,
            l,
            "attn",
            norm=layer.attn_norm,
            x=record.x,
            sums=record.attention_sum,
            d_norm=work.d_attn_norm,
            d_sum=d_sum,
        )
        self._through_last_map(
            i,
            above,
            own,
            affine=layer.out,
            keep=keep_of(block.inputs.dropouts.attention_residual_LTBD, l, t),
            d_branch=work.d_attention[l, i],
            out=work.da[i, l],
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
        return own

    def _sublayer(
        self,
        i: int,
        l: int,
        kind: str,
        *,
        norm: Affine,
        x: Tensor,
        sums: Tensor | None,
        d_norm: Tensor,
        d_sum: Tensor,
    ) -> Sublayer:
        """A sublayer at the tile's step i, whose gradients are still to be computed.

        Args:
            kind: its key in the record's statistics: "attn", "cross" or "ffn".
            norm: its norm's weights.
            x, sums: the record's inputs, and (post-norm) sums of residual connections, of all layers and steps.
            d_norm: the workspace's gradients of norms, of all layers and steps.
            d_sum: where the gradient of its sum belongs; another buffer than that of the sublayer above.
        """
        at = self.tile.at + i
        d = d_norm[l, i]
        statistics = self.record.statistics[kind][:, l, at]
        if self.pre_norm:
            return Sublayer(d_sum, norm, x[l, at], statistics, d, d)
        return Sublayer(d_sum, norm, sums[l, at], statistics, d, self.d_input)

    def _through_last_map(
        self,
        i: int,
        above: Sublayer,
        own: Sublayer,
        *,
        affine: Affine,
        keep: tuple[Tensor | None, float],
        d_branch: Tensor,
        out: Tensor,
        mix: Tensor | None = None,
        hidden: Tensor | None = None,
        keep_hidden: tuple[Tensor | None, float] = (None, 1.0),
    ) -> None:
        """Propagate the gradient of a sublayer's result to the input of its last linear map; see ``back_product``.

        Args:
            i: the tile's step.
            above: the sublayer above.
            own: the sublayer; its ``d_sum`` is written, and with post-norm its ``d_norm``.
            affine: its last linear map.
            keep: the dropout mask on its output, and the scale of what is kept.
            d_branch: written: the gradient of the map's output.
            out: written: the gradient of the map's input.
            mix: the shares of the layer's output in the memories, in its first column (feed-forward sublayer).
            hidden, keep_hidden: activations before the map and their dropout (feed-forward sublayer).
        """
        s, work = self.block.sizes, self.work
        # With pre-norm, what the sublayer above adds goes through its norm; with post-norm, all goes through the own.
        normed = above if self.pre_norm else own
        mean, rstd = (None, None) if normed.norm is None else normed.statistics
        N = out.shape[-1]
        self.launcher.product(
            products_backward.back_product,
            N,
            s.D,
            base=above.d_sum,
            d_normed=above.d_input,
            x=normed.x,
            norm_weight=None if normed.norm is None else normed.norm.weight,
            mean_in=mean,
            rstd_in=rstd,
            d_memory=None if mix is None else work.d_memory_KTBD[:, i],
            mix=mix,
            weight=affine.weight,
            hidden=hidden,
            keep_residual=keep[0],
            keep_hidden=keep_hidden[0],
            d_sum=own.d_sum,
            d_norm_out=None if self.pre_norm else own.d_norm,
            d_branch=d_branch,
            out=out,
            N=N,
            memory_stride=work.d_memory_KTBD.stride(0),
            mix_stride=0 if mix is None else mix.stride(0),
            scale_residual=keep[1],
            scale_hidden=keep_hidden[1],
            PRE=self.pre_norm,
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
            attention_backward.attend_backward,
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
