"""The Triton loop's forward pass: five kernels per layer and step, and one for what the step leaves."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fb_fairseq.ops.feedback.block import Block, Record, Room, contiguous
from fb_fairseq.ops.feedback.triton import attention, products
from fb_fairseq.ops.feedback.triton.launches import AttendedSlots, Launcher, Parts, keep_of
from fb_fairseq.ops.feedback.triton.products import NUMBERS
from fb_fairseq.ops.feedback.triton.slots import Sets, Slots, log_masks, stacked
from fb_fairseq.ops.feedback.types import FeedbackDropouts, FeedbackOptions
from fb_fairseq.ops.layers import Affine, Layer, Projection


class Pending(NamedTuple):
    """The sum of a residual connection whose norm the next kernel that reads it is still to take (post-norm).

    Attributes:
        summed: the norm's input [B, D].
        norm: its weights.
        result: where its result [B, D] belongs.
        mean, rstd: where its statistics [B] belong.
    """

    summed: Tensor
    norm: Affine
    result: Tensor
    mean: Tensor
    rstd: Tensor


class StepKernels:
    """The kernels of a step, in a block and in decoding. ``most``: the most slots that a step attends to."""

    def __init__(
        self,
        room: Room,
        layers: Sequence[Layer],
        options: FeedbackOptions,
        dropouts: FeedbackDropouts,
        slots: Slots,
        most: int,
    ):
        self.sizes, self.layers, self.dropouts, self.slots = room.sizes, layers, dropouts, slots
        self.pre_norm, self.relu = options.normalize_before, options.activation == "relu"
        self.kind, self.has_encoder = NUMBERS[options.activation], bool(room.sources)
        self.launcher = Launcher(room.sizes, room.dtype, room.wide, room.buffers.device, most)
        self.parts = Parts.allocate(self.launcher, room)

    def run(self, record: Record, at: int, t: int, x_BD: Tensor, first_query_BX: Tensor, again: bool = False) -> None:
        """Run the layers on step t; activations go to the record at step ``at``. Unless it runs ``again``, write what
        it leaves to its slot.
        """
        s, r = self.sizes, record
        pre_norm, last = self.pre_norm, s.L - 1
        x = r.x[:, at]
        x[0].copy_(x_BD)
        pending: Pending | None = None
        for l, layer in enumerate(self.layers):
            masks = self.dropouts
            # Attention to the memory.
            q, a = (first_query_BX, r.a[at, l]) if l == 0 else (r.q[at, l], r.a[at, l])
            if l > 0:
                self._normed_product(r, at, l, "attn", x[l], pending, layer.attn_norm, layer.query, q)
            attended = self.slots.of_memory(l, t)
            result = r.attended_x[l, at] if pre_norm else r.attention_sum[l, at]
            keep = keep_of(masks.attention_residual_LTBD, l, t)
            self._attend(q, attended, a, r.lse[at, l], x[l], layer.out, keep, result)
            pending = self._pending(r, at, l, "attn", result, layer.attn_norm, r.attended_x)
            x_now = r.attended_x[l, at]
            if self.has_encoder:
                cross = layer.cross
                q, a = r.cross_q[at, l], r.cross_a[at, l]
                self._normed_product(r, at, l, "cross", x_now, pending, cross.attn_norm, cross.query, q)
                result = r.crossed_x[l, at] if pre_norm else r.cross_sum[l, at]
                keep = keep_of(masks.cross_residual_LTBD, l, t)
                self._attend(q, self.slots.of_encoder(l, t), a, r.cross_lse[at, l], x_now, cross.out, keep, result)
                pending = self._pending(r, at, l, "cross", result, cross.attn_norm, r.crossed_x)
                x_now = r.crossed_x[l, at]
            # Feed-forward sublayer.
            hidden = r.hidden[l, at]
            self._normed_product(r, at, l, "ffn", x_now, pending, layer.ffn_norm, layer.fc1, hidden, relu=self.relu)
            result = x[l + 1] if pre_norm else r.ffn_sum[l, at]
            keep_in, keep_out = keep_of(masks.hidden_LTBF, l, t), keep_of(masks.ffn_residual_LTBD, l, t)
            self._product_residual(hidden, layer.fc2, x_now, result, keep_in, keep_out, s.F, self.kind)
            pending = self._pending(r, at, l, "ffn", result, layer.ffn_norm, r.x, 1)
            if pending is not None and l == last:
                self._take_norm(pending)
                pending = None
        if not again:
            self.slots.remember(self.launcher, x, t)

    def first_query(self, record: Record, x_BD: Tensor, query_BX: Tensor) -> None:
        """Layer 1's queries of a step; in a block those of all steps are computed before."""
        layer = self.layers[0]
        self._normed_product(record, 0, 0, "attn", x_BD, None, layer.attn_norm, layer.query, query_BX)

    def _pending(
        self, r: Record, at: int, l: int, kind: str, summed: Tensor, norm: Affine, results: Tensor, next: int = 0
    ) -> Pending | None:
        """The norm that is still to be taken after a sublayer; None with pre-norm."""
        if self.pre_norm:
            return None
        mean, rstd = r.statistics[kind][:, l, at]
        return Pending(summed, norm, results[l + next, at], mean, rstd)

    def _normed_product(
        self,
        r: Record,
        at: int,
        l: int,
        kind: str,
        x: Tensor,
        pending: Pending | None,
        norm: Affine,
        affine: Affine,
        out: Tensor,
        relu: bool = False,
    ) -> None:
        """A sublayer's first linear map, after its norm, or after the norm that is pending."""
        D, N = self.sizes.D, out.shape[-1]
        taken: Affine | None = None
        normed = mean = rstd = None
        if self.pre_norm:
            taken = norm
            mean, rstd = r.statistics[kind][:, l, at]
        elif pending is not None:
            x, taken, normed, mean, rstd = pending
        self.launcher.product(
            products.normed_product,
            N,
            D,
            x=x,
            norm_weight=taken and taken.weight,
            norm_bias=taken and taken.bias,
            weight=affine.weight,
            bias=affine.bias,
            out=out,
            normed=normed,
            mean_out=mean,
            rstd_out=rstd,
            N=N,
            D=D,
            RELU=relu,
        )

    def _attend(
        self,
        q: Tensor,
        attended: AttendedSlots,
        a: Tensor,
        lse: Tensor,
        residual: Tensor,
        out: Affine,
        keep: tuple[Tensor | None, float],
        result: Tensor,
    ) -> None:
        """Attention, its output projection and the residual connection."""
        self.launcher.attend(attention.attend, attended, q=q, out=a, lse=lse, **self.parts._asdict())
        self._product_residual(a, out, residual, result, (None, 1.0), keep, self.sizes.X, 0)

    def _product_residual(
        self,
        a: Tensor,
        affine: Affine,
        residual: Tensor,
        result: Tensor,
        keep_in: tuple[Tensor | None, float],
        keep_out: tuple[Tensor | None, float],
        inner: int,
        kind: int,
    ) -> None:
        """A sublayer's last linear map with what is around it."""
        self.launcher.product(
            products.product_residual,
            self.sizes.D,
            inner,
            a=a,
            weight=affine.weight,
            bias=affine.bias,
            residual=residual,
            out=result,
            keep_in=keep_in[0],
            keep_out=keep_out[0],
            N=self.sizes.D,
            scale_in=keep_in[1],
            scale_out=keep_out[1],
            K=inner,
            KIND=kind,
        )

    def _take_norm(self, pending: Pending) -> None:
        """Take a norm that no product is going to take."""
        self.launcher.rows(
            products.norm_rows,
            x=pending.summed,
            norm_weight=pending.norm.weight,
            norm_bias=pending.norm.bias,
            out=pending.result,
            mean_out=pending.mean,
            rstd_out=pending.rstd,
        )


def slots_of_block(block: Block) -> Slots:
    """A block's slots. (They do not hold the block, which holds them.)"""
    s, weights, inputs = block.sizes, block.weights, block.inputs
    norms = [projection.norm for projection in weights.projections]
    both = stacked([Projection(*parts) for parts in zip(norms, weights.key_values, weights.key_values)])
    value = pytree.tree_map_only(Tensor, lambda x: x[:, s.X :], both.value)
    mix_KA = weights.mix_KA.to(block.wide).contiguous()
    sets = Sets(
        mix_KA=mix_KA,
        memory_KTBD=block.memory_KTBD,
        projections=both._replace(value=value),
        keys_IGCE=block.slots.keys_IGCE,
        values_IGCE=block.slots.values_IGCE,
    )
    return Slots(
        sizes=s,
        keys_IGCE=sets.keys_IGCE,
        values_IGCE=sets.values_IGCE,
        sets=[sets],
        positions=contiguous(weights.positions),
        log_masks=log_masks(weights.spans, s.S, block.wide),
        reaches=block.reaches,
        encoder=block.encoder,
        dropouts=inputs.dropouts,
        age_TB=None if inputs.age_TB is None else inputs.age_TB.to(torch.int32).contiguous(),
    )


class BlockKernels:
    """A block's kernels. (It does not hold the block, which holds it.)"""

    def __init__(self, block: Block):
        inputs, self.slots = block.inputs, slots_of_block(block)
        self.steps = StepKernels(
            block.room, block.weights.layers, inputs.options, inputs.dropouts, self.slots, block.sizes.S
        )

    def forward(self, block: Block, record: Record, first: int, last: int, again: bool) -> None:
        """Run some steps; see ``Loop.forward_steps``."""
        queries_TBX, n = torch.stack(list(block.first_queries(first, last))), last - first
        has_all = record.steps >= n
        for i in range(n):
            t = first + i
            self.steps.run(record, i if has_all else 0, t, block.inputs.x_TBD[t], queries_TBX[i], again)
            if not has_all:
                block.out_TBD[t].copy_(record.x[-1, 0])
        if has_all:
            record.q[:n, 0] = queries_TBX
        if has_all and not again:
            block.out_TBD[first:last] = record.x[-1, :n]
